//! Callers that leave a batch while others are still in it.

use std::{
    sync::atomic::AtomicBool,
    task::{Context, Poll, Wake, Waker},
};

use super::*;

type Call = BoxFuture<'static, Verdict>;

/// A caller on another thread, which polls only when it was woken.
#[derive(Default)]
struct Other {
    call: Mutex<Option<Call>>,
    woken: Arc<Woken>,
}

#[derive(Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

impl Other {
    fn was_woken(&self) -> bool {
        self.woken.0.swap(false, Ordering::SeqCst)
    }

    fn poll(&self) -> Poll<Verdict> {
        let mut call = lock(&self.call);
        let call = call.as_mut().expect("a call");
        call.poll_unpin(&mut Context::from_waker(&Waker::from(Arc::clone(&self.woken))))
    }
}

/// Answers `quick` at once, and lets the wake for `slow` come while somebody polls the batch: the other caller is woken,
/// looks, finds the batch in work, and waits on.
struct Racing(Arc<Other>);

#[async_trait]
impl BatchCall for Racing {
    type Entry = &'static str;
    const TRIES: u32 = 1;

    fn size(_: &&'static str) -> usize {
        0
    }

    async fn batch(&self, _: &[(String, &'static str)]) -> Result<Listed, Fault> {
        Err(Fault::new(Meaning::Refused, "one by one"))
    }

    async fn single(&self, entry: &&'static str) -> Verdict {
        let mut raced = *entry == "quick";
        std::future::poll_fn(|cx| {
            if std::mem::replace(&mut raced, true) {
                return Poll::Ready(Ok(()));
            }
            cx.waker().wake_by_ref();
            assert!(self.0.was_woken() && self.0.poll().is_pending());
            Poll::Pending
        })
        .await
    }
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_leaves_with_its_answer_does_not_take_the_others_wake_along() {
    let other = Arc::<Other>::default();
    let batcher = Arc::new(Batcher::new(Racing(Arc::clone(&other)), Clock::simulated(1, 0)));
    let mut quick = Box::pin(batcher.call("quick"));
    poke(&mut quick).await;
    let slow = Arc::clone(&batcher);
    *lock(&other.call) = Some(async move { slow.call("slow").await }.boxed());
    assert!(other.poll().is_pending());
    assert_eq!(quick.await, Ok(()));
    assert!(other.was_woken(), "nobody else is left to drive the batch");
    assert_eq!(other.poll(), Poll::Ready(Ok(())));
}
