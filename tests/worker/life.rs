//! The life of a message, in every way that it can end.

use leasehold::testing::TestBed;

use crate::bench::{Book, worker};

#[tokio::test(start_paused = true)]
async fn t1_a_message_is_done_once_and_its_duplicate_suppressed() {
    let (bed, book) = (TestBed::new(&["jobs"]), Book::new());
    bed.send("jobs", r#"{"id":"a"}"#);
    bed.send("jobs", r#"{"id":"a"}"#);
    let report = worker(&bed, &book, &[]).run(bed.until_idle()).await.unwrap();
    assert_eq!((report.done, report.suppressed), (1, 1));
    assert_eq!(book.runs("a").len(), 1);
}
