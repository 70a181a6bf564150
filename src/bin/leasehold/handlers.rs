//! Which handler a setting means: a program or an app.
//!
//! For every command that runs a worker. What does not fit together was told when the settings were read; what the machine
//! does not have is told here, all at once.

use leasehold::{
    ExecHandler, HttpHandler, HttpHandlerError, Worker, WorkerError,
    config::{HandlerCredentials, HandlerSpec, Problem, QueueConfig, variable},
};

/// With the handler that its settings name, for each queue that has one.
pub(crate) fn with_handlers(mut worker: Worker) -> Result<Worker, WorkerError> {
    let queues = worker.config().map(|config| config.queues.clone()).unwrap_or_default();
    let mut problems = Vec::new();
    for (name, queue) in &queues {
        worker = match &queue.handler {
            Some(HandlerSpec::Exec { program, args }) => worker.queue(name, exec(program, args, queue)),
            Some(HandlerSpec::Http { url }) => match http(url.as_str(), queue) {
                Ok(handler) => worker.queue(name, handler),
                Err(error) => {
                    let variable = variable(name, "HANDLER");
                    problems.push(Problem::new(error.to_string(), format!("{variable}=http://127.0.0.1:8080/jobs")));
                    worker
                }
            },
            _ => worker,
        };
    }
    if problems.is_empty() { Ok(worker) } else { Err(WorkerError::Configuration(problems)) }
}

fn exec(program: &str, args: &[String], queue: &QueueConfig) -> ExecHandler {
    let handler = ExecHandler::new(program, args);
    if queue.handler_credentials == HandlerCredentials::Pass { handler.with_aws_credentials() } else { handler }
}

fn http(url: &str, queue: &QueueConfig) -> Result<HttpHandler, HttpHandlerError> {
    let handler = HttpHandler::new(url)?.with_permanent_status(queue.permanent_status.clone());
    queue.handler_headers.iter().try_fold(handler, HttpHandler::with_header)
}
