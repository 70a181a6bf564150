//! Handlers that settings name: which kind a setting means.

use leasehold::{ExecHandler, Worker, config::HandlerSpec};

/// With the handler that its settings name, for each queue that has one.
pub(crate) fn with_handlers(worker: Worker) -> Worker {
    let mut handlers = Vec::new();
    for (name, queue) in worker.config().into_iter().flat_map(|config| &config.queues) {
        if let Some(HandlerSpec::Exec { program, args }) = &queue.handler {
            handlers.push((name.clone(), ExecHandler::new(program, args)));
        }
    }
    handlers.into_iter().fold(worker, |worker, (name, handler)| worker.queue(name, handler))
}
