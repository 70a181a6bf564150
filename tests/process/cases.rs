//! The rows of a table, checked side by side: most of their time they wait. Not more at once than a small machine can
//! serve, for a lease that lapses because of its own test proves nothing.

use std::{any::Any, collections::BTreeMap, fmt};

use tokio::{
    sync::Semaphore,
    task::{JoinSet, LocalSet},
};

/// So many cases of all tables are under way.
static PLACES: Semaphore = Semaphore::const_new(32);

/// Checks every case, and names all that fail with why.
pub(crate) async fn check_all<C, F>(cases: impl IntoIterator<Item = C>, check: impl Fn(C) -> F)
where
    C: fmt::Debug,
    F: Future<Output = ()> + 'static,
{
    let (here, mut checks, mut names, mut failed) = (LocalSet::new(), JoinSet::new(), BTreeMap::new(), Vec::new());
    for case in cases {
        let name = format!("{case:?}");
        let check = check(case);
        let in_turn = async {
            let _place = PLACES.acquire().await;
            check.await;
        };
        names.insert(checks.spawn_local_on(in_turn, &here).id(), name);
    }
    while let Some(checked) = here.run_until(checks.join_next()).await {
        if let Err(error) = checked {
            let name = names[&error.id()].clone();
            failed.push(format!("=== {name}: {}", why(&*error.into_panic())));
        }
    }
    assert!(failed.is_empty(), "{} of {} cases failed:\n{}", failed.len(), names.len(), failed.join("\n"));
}

fn why(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or_default()
}
