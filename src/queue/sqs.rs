//! The queue port on Amazon SQS.
//!
//! Owns how each call is sent: how long it may take, how often it is tried, and what it is gathered with. Relies on
//! [`aws`] for the client. Must never send a receive or a visibility change a second time.
//!
//! A queue URL's host says which region to ask, and no more: the SDK sends calls to its own endpoint for that region. Where
//! an endpoint is set (`AWS_ENDPOINT_URL`) all go there, so that LocalStack's URLs work although their host does not resolve.

use std::{future::Future, sync::Arc, time::Duration};

use async_trait::async_trait;
use aws_sdk_sqs::types::{MessageSystemAttributeName, QueueAttributeName};

use self::{
    batch::Batcher,
    calls::{ChangeVisibility, Delete, Send, Target},
    convert::Told,
    errors::Fault,
    place::{Arn, Regions},
};
use super::{
    BATCH, Broker, DeduplicationScope, Depth, LARGEST_MESSAGE, MOST_ATTRIBUTES, Move, MoveTask, Outgoing, Queue,
    QueueAddress, QueueError, QueueFacts, Receive, Received,
};
use crate::{aws, clock::Clock, message::ReceiptHandle};

mod batch;
mod calls;
pub(crate) mod convert;
mod errors;
mod moving;
mod place;
#[cfg(test)]
mod tests;

/// How much longer than its wait time a receive may take. Generous: a poll that is cut off just as it is answered has
/// taken messages along for a whole visibility timeout. Wait time and margin together belong below the shortest
/// visibility timeout (rule R4).
pub const RECEIVE_MARGIN: Duration = Duration::from_secs(5);

/// Longest wait for the answer to a look-up.
const LOOK_UP_TIMEOUT: Duration = Duration::from_secs(5);

/// How often a look-up is tried: they are few, and repeating one is harmless.
const LOOK_UP_TRIES: u32 = 3;

/// A queue's own settings where it was not told otherwise.
/// <https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_SetQueueAttributes.html>
const DEFAULT_VISIBILITY: u64 = 30;
const DEFAULT_RETENTION: u64 = 4 * 24 * 60 * 60;
const DEFAULT_LARGEST_MESSAGE: usize = LARGEST_MESSAGE;

/// The queues that an SQS client reaches, and those of other regions that its credentials reach.
#[derive(Debug, Clone)]
pub struct SqsBroker {
    regions: Regions,
    clock: Clock,
}

impl SqsBroker {
    /// With the client's region, credentials and endpoint; `clock` gives the jitter between tries.
    ///
    /// A queue whose URL or ARN names another region is asked there, by a client made from this one.
    #[must_use]
    pub fn new(client: aws_sdk_sqs::Client, clock: Clock) -> Self {
        Self { regions: Regions::new(client), clock }
    }

    /// For a client whose endpoint is set: no other region is reached through it, and a queue elsewhere is refused.
    #[must_use]
    pub fn at_one_endpoint(self) -> Self {
        Self { regions: self.regions.at_one_endpoint(), ..self }
    }

    /// The URL of a queue. A name and an ARN are looked up, the latter with its owner's account; a URL is taken as it is,
    /// whether there is such a queue or not.
    ///
    /// # Errors
    /// [`QueueError::Missing`] where there is no queue of that name, which SQS also says to those who may not see it;
    /// [`QueueError::Refused`] for an address that cannot be read, and for one in another region than that of the
    /// [one endpoint](Self::at_one_endpoint).
    pub async fn url(&self, address: &QueueAddress) -> Result<String, QueueError> {
        Ok(self.target(address).await?.url)
    }

    async fn target(&self, address: &QueueAddress) -> Result<Target, QueueError> {
        let (region, name, account) = match address {
            QueueAddress::Url(url) => {
                let client = self.regions.client(address, place::region_of_url(url).as_deref())?;
                return Ok(Target { client, url: url.clone() });
            }
            QueueAddress::Name(name) => (None, name.as_str(), None),
            QueueAddress::Arn(arn) => {
                let Some(arn) = Arn::parse(arn) else {
                    return Err(QueueError::Refused(format!("{arn:?} is not the ARN of a queue")));
                };
                (Some(arn.region), arn.name, Some(arn.account))
            }
        };
        let client = self.regions.client(address, region)?;
        let url = self.look_up(&client, name, account).await?;
        Ok(Target { client, url })
    }

    /// For what is asked of the service about a queue.
    fn client_of(&self, arn: &str) -> Result<aws_sdk_sqs::Client, QueueError> {
        let region = Arn::parse(arn).map(|arn| arn.region);
        self.regions.client(&QueueAddress::Arn(arn.to_owned()), region)
    }

    async fn look_up(
        &self,
        client: &aws_sdk_sqs::Client,
        name: &str,
        account: Option<&str>,
    ) -> Result<String, QueueError> {
        let reply = retried(&self.clock, || async {
            let call = client.get_queue_url().queue_name(name);
            let call = call.set_queue_owner_aws_account_id(account.map(str::to_owned));
            Ok(call.customize().config_override(aws::one_attempt(LOOK_UP_TIMEOUT)).send().await?)
        })
        .await?;
        reply.queue_url.ok_or_else(|| QueueError::Unavailable(Some("the reply has no queue URL".into())))
    }
}

#[async_trait]
impl Broker for SqsBroker {
    async fn open(&self, address: &QueueAddress) -> Result<Arc<dyn Queue>, QueueError> {
        let Target { client, url } = self.target(address).await?;
        Ok(Arc::new(SqsQueue::new(client, url, self.clock.clone())))
    }

    fn looks_in(&self, address: &QueueAddress) -> Option<String> {
        let own = self.regions.own();
        match address {
            QueueAddress::Name(_) => Some(format!("region {}, in the account of the credentials", own?)),
            QueueAddress::Url(url) => Some(format!("region {}", place::region_of_url(url).as_deref().or(own)?)),
            QueueAddress::Arn(arn) => {
                Arn::parse(arn).map(|arn| format!("region {}, account {}", arn.region, arn.account))
            }
        }
    }

    async fn start_move(&self, task: &Move) -> Result<(), QueueError> {
        Ok(moving::start(&self.client_of(&task.from)?, task).await?)
    }

    async fn latest_move(&self, from: &str) -> Result<Option<MoveTask>, QueueError> {
        Ok(moving::latest(&self.client_of(from)?, from, &self.clock).await?)
    }

    async fn cancel_move(&self, from: &str, handle: &str) -> Result<(), QueueError> {
        Ok(moving::cancel(&self.client_of(from)?, handle).await?)
    }
}

/// One queue on SQS. Deletes, visibility changes and sends that come close together go out in batches.
#[derive(Debug)]
pub struct SqsQueue {
    target: Target,
    clock: Clock,
    deletes: Batcher<Delete>,
    visibilities: Batcher<ChangeVisibility>,
    sends: Batcher<Send>,
    told: Told,
}

impl SqsQueue {
    /// The queue at `url`.
    #[must_use]
    pub fn new(client: aws_sdk_sqs::Client, url: String, clock: Clock) -> Self {
        let target = Target { client, url };
        Self {
            deletes: Batcher::new(Delete(target.clone()), clock.clone()),
            visibilities: Batcher::new(ChangeVisibility(target.clone()), clock.clone()),
            sends: Batcher::new(Send(target.clone()), clock.clone()),
            told: Told::default(),
            target,
            clock,
        }
    }
}

#[async_trait]
impl Queue for SqsQueue {
    async fn receive(&self, ask: &Receive) -> Result<Vec<Received>, QueueError> {
        let Target { client, url } = &self.target;
        let call = client
            .receive_message()
            .queue_url(url)
            .max_number_of_messages(i32::try_from(ask.max.clamp(1, BATCH)).unwrap_or(1))
            .wait_time_seconds(convert::seconds(ask.wait))
            .visibility_timeout(convert::seconds(ask.visibility))
            .message_system_attribute_names(MessageSystemAttributeName::All)
            .message_attribute_names("All")
            .set_receive_request_attempt_id(ask.attempt_id.clone());
        let timeout = ask.wait + RECEIVE_MARGIN;
        let sent = call.customize().config_override(aws::one_attempt(timeout)).send().await;
        let messages = sent.map_err(Fault::from)?.messages.unwrap_or_default();
        Ok(messages.into_iter().filter_map(|from| convert::received(from, &self.told)).collect())
    }

    async fn delete(&self, handle: &ReceiptHandle) -> Result<(), QueueError> {
        Ok(self.deletes.call(handle.clone()).await?)
    }

    async fn change_visibility(&self, handle: &ReceiptHandle, timeout: Duration) -> Result<(), QueueError> {
        Ok(self.visibilities.call((handle.clone(), convert::seconds(timeout))).await?)
    }

    async fn send(&self, message: &Outgoing) -> Result<(), QueueError> {
        let (size, attributes) = (message.size(), message.attributes.len());
        if size > LARGEST_MESSAGE {
            return Err(QueueError::Refused(format!("{size} bytes are more than the {LARGEST_MESSAGE} of a message")));
        }
        if attributes > MOST_ATTRIBUTES {
            return Err(QueueError::Refused(format!("{attributes} attributes are more than {MOST_ATTRIBUTES}")));
        }
        Ok(self.sends.call(Arc::new(message.clone())).await?)
    }

    async fn facts(&self) -> Result<QueueFacts, QueueError> {
        let Target { client, url } = &self.target;
        let reply = retried(&self.clock, || async {
            let call = client.get_queue_attributes().queue_url(url).attribute_names(QueueAttributeName::All);
            Ok(call.customize().config_override(aws::one_attempt(LOOK_UP_TIMEOUT)).send().await?)
        })
        .await?;
        let attributes = reply.attributes.unwrap_or_default();
        let text = |name: QueueAttributeName| attributes.get(&name).map(String::as_str);
        let seconds = |name, default| Duration::from_secs(text(name).and_then(|n| n.parse().ok()).unwrap_or(default));
        let arn = text(QueueAttributeName::QueueArn)
            .ok_or_else(|| QueueError::Unavailable(Some("the queue does not tell its ARN".into())))?;
        Ok(QueueFacts {
            arn: arn.to_owned(),
            url: url.clone(),
            fifo: text(QueueAttributeName::FifoQueue) == Some("true"),
            content_based_deduplication: text(QueueAttributeName::ContentBasedDeduplication) == Some("true"),
            deduplication_scope: match text(QueueAttributeName::DeduplicationScope) {
                Some("messageGroup") => DeduplicationScope::MessageGroup,
                _ => DeduplicationScope::Queue,
            },
            visibility: seconds(QueueAttributeName::VisibilityTimeout, DEFAULT_VISIBILITY),
            retention: seconds(QueueAttributeName::MessageRetentionPeriod, DEFAULT_RETENTION),
            redrive: text(QueueAttributeName::RedrivePolicy).and_then(convert::redrive),
            redrive_allow: text(QueueAttributeName::RedriveAllowPolicy).map(convert::redrive_allow).unwrap_or_default(),
            largest_message: text(QueueAttributeName::MaximumMessageSize)
                .and_then(|bytes| bytes.parse().ok())
                .unwrap_or(DEFAULT_LARGEST_MESSAGE),
            kms_key: text(QueueAttributeName::KmsMasterKeyId).filter(|key| !key.is_empty()).map(str::to_owned),
        })
    }

    async fn depth(&self) -> Result<Depth, QueueError> {
        Ok(moving::depth(&self.target, &self.clock).await?)
    }

    async fn sources(&self) -> Result<Vec<String>, QueueError> {
        Ok(moving::sources(&self.target, &self.clock).await?)
    }
}

/// Tries a look-up again while its fault is one that passes.
async fn retried<T, F>(clock: &Clock, look_up: impl Fn() -> F) -> Result<T, Fault>
where
    F: Future<Output = Result<T, Fault>>,
{
    let mut attempt = 1;
    loop {
        match look_up().await {
            Err(fault) if fault.is_transient() && attempt < LOOK_UP_TRIES => attempt += 1,
            outcome => return outcome,
        }
        tokio::time::sleep(batch::backoff(clock, attempt)).await;
    }
}
