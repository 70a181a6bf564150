use super::*;

mod connections;
mod replies;

fn handle(text: &'static str) -> ReceiptHandle {
    ReceiptHandle::new(text)
}

/// The error's variant by name, `Ok` if there is none.
fn kind(outcome: &Result<(), QueueError>) -> &'static str {
    match outcome {
        Ok(()) => "Ok",
        Err(QueueError::HandleLost) => "HandleLost",
        Err(QueueError::TwelveHours) => "TwelveHours",
        Err(QueueError::Throttled(_)) => "Throttled",
        Err(QueueError::Unavailable(_)) => "Unavailable",
        Err(QueueError::NoAnswer(_)) => "NoAnswer",
        Err(QueueError::Denied(_)) => "Denied",
        Err(QueueError::Missing) => "Missing",
        Err(QueueError::Refused(_)) => "Refused",
        Err(QueueError::Unsupported(_)) => "Unsupported",
    }
}

fn ask() -> Receive {
    Receive { max: 10, wait: Duration::from_secs(10), visibility: Duration::from_secs(30), attempt_id: None }
}
