//! `dlq ls` and `dlq peek`: looking, which changes nothing but receive counts.
//!
//! Owns what is shown of a look that was cut short. Keeps no message longer than it takes to show it. Nothing here is put
//! back or deleted.

use std::{collections::BTreeMap, process::ExitCode};

use anyhow::anyhow;
use leasehold::{
    clock::Millis,
    ops::dead_letters::{Choice, DeadLetters, Ending, Groups, Letter},
};

use super::{
    LsArgs, PeekArgs, explained, opened, print,
    show::{self, Listed},
    stop::{Stop, stopped},
    told, tools,
};

/// How many messages are looked through at the most for those that are to be shown, where only some are meant.
const LOOK_THROUGH: usize = 10_000;

pub(super) async fn list(args: &LsArgs, stop: &Stop) -> anyhow::Result<ExitCode> {
    let ops = stop.or(tools(&args.queues)).await??;
    let queues = match args.queues.as_slice() {
        [] => ops.config().queues.keys().cloned().collect(),
        named => named.to_vec(),
    };
    // Several queues can have one dead-letter queue, and one that cannot be looked at keeps no other from being shown.
    let mut by_dead: BTreeMap<String, (DeadLetters, Vec<String>)> = BTreeMap::new();
    let mut failed = Vec::new();
    for queue in queues {
        match stop.or(opened(&ops, &queue)).await? {
            Ok(letters) => {
                let of = by_dead.entry(letters.arn().to_owned()).or_insert_with(|| (letters, Vec::new()));
                of.1.push(queue);
            }
            Err(error) => failed.push(error),
        }
    }
    let (mut shown, now) = (0, ops.clock().wall());
    for (letters, queues) in by_dead.values() {
        match list_one(args, letters, queues, now, shown == 0, stop).await {
            Ok(()) => shown += 1,
            Err(error) => failed.push(error),
        }
        if stop.told().is_cancelled() {
            return Err(stopped());
        }
    }
    // One that alone is told is told with its exit code.
    let last = failed.pop_if(|_| shown == 0);
    for error in &failed {
        stop.say(&format!("leasehold: {error:#}"));
    }
    match last {
        Some(error) => Err(error),
        None => Ok(if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }),
    }
}

async fn list_one(
    args: &LsArgs,
    letters: &DeadLetters,
    of: &[String],
    now: Millis,
    is_first: bool,
    stop: &Stop,
) -> anyhow::Result<()> {
    let failed = |error| explained(letters.queue(), error);
    let at_most = usize::try_from(args.limit).unwrap_or(usize::MAX);
    let depth = stop.or(letters.depth()).await?.map_err(failed)?;
    let (mut groups, mut oldest) = (Groups::default(), None);
    let count = |letter: Letter| {
        oldest = oldest.into_iter().chain(letter.at()).min();
        groups.add(&letter);
    };
    let looked = letters.look(&Choice::default(), at_most, stop.told(), count).await.map_err(failed)?;
    let listed = Listed { letters, of, depth, looked, oldest, groups: groups.told() };
    if args.json {
        return print(&listed.json()?);
    }
    print(&format!("{}{}", if is_first { "" } else { "\n" }, listed.text(now)))
}

pub(super) async fn peek(args: &PeekArgs, stop: &Stop) -> anyhow::Result<ExitCode> {
    let ops = stop.or(tools(std::slice::from_ref(&args.queue))).await??;
    let choice = args.which.choice(&ops, &args.queue, Some(args.limit))?;
    let letters = stop.or(opened(&ops, &args.queue)).await??;
    let now = ops.clock().wall();
    let (mut shown, mut printed) = (0_usize, Ok(()));
    let show = |letter: Letter| {
        shown += 1;
        let text = if args.json {
            show::letter_json(&letters, &letter, now).map_err(|error| anyhow!(error))
        } else {
            let text = show::letter(&letters, &letter, shown, args.full, now);
            Ok(if shown == 1 { text } else { format!("\n{text}") })
        };
        if printed.is_ok() {
            printed = text.and_then(|text| print(&text));
        }
    };
    let at_most = LOOK_THROUGH.max(choice.limit.unwrap_or_default());
    let looked = letters.look(&choice, at_most, stop.told(), show).await;
    let looked = looked.map_err(|error| explained(letters.queue(), error))?;
    printed?;
    if shown == 0 && !args.json {
        let whole = if looked.ending == Ending::All { "" } else { " of those that were looked at" };
        let such = if args.which.is_all() { "" } else { " such" };
        print(&format!("{}: no{such} message{whole}\n", show::dead(&letters)))?;
    }
    if looked.at > 0 {
        let at = told::messages(looked.at as u64);
        stop.say(&format!("Looked at {at}, which counts as one more receive of each"));
    }
    let is_cut_short = looked.at >= at_most && (shown as u64) < u64::from(args.limit);
    if is_cut_short {
        stop.say(&format!("The end was not reached: no more than {at_most} are looked through"));
    } else if let Some(why) = told::why_not_all(looked.ending, looked.unseen) {
        stop.say(&why);
    }
    if stop.told().is_cancelled() { Err(stopped()) } else { Ok(ExitCode::SUCCESS) }
}
