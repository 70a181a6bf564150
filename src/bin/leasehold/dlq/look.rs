//! `dlq ls` and `dlq peek`: looking, which changes nothing but receive counts.
//!
//! Owns what is shown of a look that was cut short. Nothing here is put back or deleted.

use std::{
    collections::BTreeMap,
    io::{self, Write},
    process::ExitCode,
};

use leasehold::ops::dead_letters::{DeadLetters, Letter, Seen};
use tokio_util::sync::CancellationToken;

use super::{LsArgs, PeekArgs, explained, opened, print, show, tools, until_told};

/// How many more letters are looked through for each that is to be shown, where only some are meant.
const LOOK_THROUGH: usize = 10_000;

pub(super) async fn list(args: &LsArgs) -> anyhow::Result<ExitCode> {
    let ops = tools(&args.queues).await?;
    let queues = match args.queues.as_slice() {
        [] => ops.config().queues.keys().cloned().collect(),
        named => named.to_vec(),
    };
    // Several queues can have one dead-letter queue, and one that cannot be opened keeps no other from being shown.
    let mut by_dead: BTreeMap<String, (DeadLetters, Vec<String>)> = BTreeMap::new();
    let mut failed = None;
    for queue in queues {
        match opened(&ops, &queue).await {
            Ok(letters) => {
                let of = by_dead.entry(letters.arn().to_owned()).or_insert_with(|| (letters, Vec::new()));
                of.1.push(queue);
            }
            Err(error) => {
                // The last one is told at the end, if there is nothing to show.
                if let Some(error) = failed.replace(error) {
                    let _ = writeln!(io::stderr(), "leasehold: {error:#}");
                }
            }
        }
    }
    if let Some(error) = failed.take_if(|_| by_dead.is_empty()) {
        return Err(error);
    }
    let now = ops.clock().wall();
    for (number, (letters, queues)) in by_dead.values().enumerate() {
        let limit = usize::try_from(args.limit).unwrap_or(usize::MAX);
        let depth = letters.depth().await.map_err(|error| explained(&queues[0], error))?;
        let seen = seen(letters, limit).await?;
        if args.json {
            print(&show::listed_json(letters, queues, depth, &seen)?)?;
        } else {
            let text = show::listed(letters, queues, depth, &seen, now);
            print(&format!("{}{text}", if number == 0 { "" } else { "\n" }))?;
        }
    }
    let Some(error) = failed else { return Ok(ExitCode::SUCCESS) };
    let _ = writeln!(io::stderr(), "leasehold: {error:#}");
    Ok(ExitCode::FAILURE)
}

pub(super) async fn peek(args: &PeekArgs) -> anyhow::Result<ExitCode> {
    let ops = tools(std::slice::from_ref(&args.queue)).await?;
    let choice = args.which.choice(&ops, &args.queue, None)?;
    let letters = opened(&ops, &args.queue).await?;
    let limit = usize::try_from(args.limit).unwrap_or(usize::MAX);
    let Seen { letters: seen, is_all, .. } =
        seen(&letters, if args.which.is_all() { limit } else { LOOK_THROUGH.max(limit) }).await?;
    let now = ops.clock().wall();
    let meant: Vec<&Letter> = seen.iter().filter(|letter| choice.takes(letter, now)).take(limit).collect();
    for (number, letter) in meant.iter().enumerate() {
        if args.json {
            print(&show::letter_json(&letters, letter, now)?)?;
        } else {
            let text = show::letter(&letters, letter, number + 1, args.full, now);
            print(&format!("{}{text}", if number == 0 { "" } else { "\n" }))?;
        }
    }
    if meant.is_empty() && !args.json {
        let whole = if is_all { "" } else { " of those that were looked at" };
        let such = if args.which.is_all() { "" } else { " such" };
        print(&format!("{}: no{such} message{whole}\n", show::dead(&letters)))?;
    }
    Ok(ExitCode::SUCCESS)
}

async fn seen(letters: &DeadLetters, limit: usize) -> anyhow::Result<Seen> {
    let look = async |stop: &CancellationToken| letters.look(limit, stop).await;
    let say = |told: &str| {
        let _ = writeln!(io::stderr(), "{told}");
    };
    until_told(look, say).await?.map_err(|error| explained(letters.queue(), error))
}
