//! Send an e-mail: rather none than two.
//!
//! A mail server takes what it is given, and knows no keys. So the step is marked *once*: that it begins is recorded first,
//! and when nobody knows how it ended, it is not run again. The message is dead-lettered as `step_in_doubt`; somebody looks
//! into the mail server's log and says `leasehold guard reset .. --step mail --done`, or `--again`.
//!
//! What it cannot promise: that the mail is sent. Where rather two than none is right (a password reset), take `step`.

use std::sync::Arc;

use leasehold::{Handler, HandlerResult, JobContext, Key};
use serde::Deserialize;

use super::outside::Outside;

pub(crate) const MESSAGE: &str = r#"{"to":"ann@example.org","campaign":"welcome"}"#;

#[derive(Debug, Deserialize)]
pub(crate) struct Email {
    to: String,
    campaign: String,
}

/// One mail of one campaign to one address.
pub(crate) fn key(email: &Email) -> Key {
    Key::from((email.to.as_str(), email.campaign.as_str()))
}

pub(crate) struct Welcome(pub(crate) Arc<Outside>);

impl Handler for Welcome {
    type Payload = Email;

    async fn handle(&self, email: &Email, cx: &JobContext) -> HandlerResult {
        cx.step_once("mail", |_| self.0.without_key("mail", &email.to)).await?;
        Ok(())
    }
}
