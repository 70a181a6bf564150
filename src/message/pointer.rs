//! The pointer that stands in a message for a body which was put into S3.
//!
//! Amazon's Extended Client Libraries send it in place of a large body, together with a message attribute that is
//! reserved for it. Owns both generations of the two; pure, and never believes one without the other: a body that only
//! looks like a pointer is a body.
//!
//! <https://github.com/awslabs/amazon-sqs-java-extended-client-lib>,
//! <https://github.com/awslabs/payload-offloading-java-common-lib-for-aws>,
//! <https://github.com/awslabs/amazon-sqs-python-extended-client-lib>

use std::{fmt, sync::Arc};

use serde::Deserialize;

use super::Message;

/// The attributes that say that the body is in S3: the name of today, and the one before it. Their value is the size.
pub const RESERVED_ATTRIBUTES: [&str; 2] = ["ExtendedPayloadSize", "SQSLargePayloadSize"];

/// The Java classes that pointers are written as, without their packages: those differ by generation, and where a
/// library carries a copy of its own (`awsv2.repackaged.software.amazon.payloadoffloading`).
const CLASSES: [&str; 2] = ["PayloadS3Pointer", "MessageS3Pointer"];

/// The lengths of a bucket's name; the longest are from before 2018.
/// <https://docs.aws.amazon.com/AmazonS3/latest/userguide/bucketnamingrules.html>
const BUCKET_LENGTHS: std::ops::RangeInclusive<usize> = 3..=255;

/// The longest key of an object, in bytes.
/// <https://docs.aws.amazon.com/AmazonS3/latest/userguide/object-keys.html>
const LONGEST_KEY: usize = 1024;

/// Where a body is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Pointer {
    bucket: String,
    key: String,
}

impl Pointer {
    /// To that object. An error for what can be neither a bucket's name nor a key, and for ARNs: a bucket, or an access
    /// point by its alias, is named as it is written everywhere.
    pub fn new(bucket: impl Into<String>, key: impl Into<String>) -> Result<Self, NotAPointer> {
        let (bucket, key) = (bucket.into(), key.into());
        if !Self::can_be_bucket(&bucket) {
            return Err(NotAPointer("it names no bucket that S3 can have"));
        }
        if key.is_empty() || key.len() > LONGEST_KEY {
            return Err(NotAPointer("its key is empty, or longer than 1024 bytes"));
        }
        Ok(Self { bucket, key })
    }

    /// Whether S3 can have a bucket, or an access point's alias, of that name.
    #[must_use]
    pub fn can_be_bucket(name: &str) -> bool {
        let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
        let begins_well = name.starts_with(|c: char| c.is_ascii_alphanumeric());
        begins_well && BUCKET_LENGTHS.contains(&name.len()) && name.chars().all(allowed)
    }

    /// The bucket's name.
    #[must_use]
    pub fn bucket(&self) -> &str {
        &self.bucket
    }

    /// The object's key.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.key
    }
}

/// As `aws s3` has it. A sender chose the key: what could break a line of a log is escaped.
impl fmt::Display for Pointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "s3://{}/{}", self.bucket, self.key.escape_debug())
    }
}

/// A message has the reserved attribute, and its body is no pointer. The body is not told.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a message attribute says that the body is in S3, but the body is no pointer to it: {0}")]
pub struct NotAPointer(&'static str);

/// A body that was fetched, as part of its message, and where it came from.
#[derive(Debug)]
pub(crate) struct Fetched {
    pub(crate) pointer: Pointer,
    /// `None` once it was put down.
    pub(crate) message: Option<Arc<Message>>,
}

/// What stands second in a pointer.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Place {
    s3_bucket_name: String,
    s3_key: String,
}

impl Message {
    /// Where the body is, if it is in S3.
    pub fn pointer(&self) -> Result<Option<Pointer>, NotAPointer> {
        if !RESERVED_ATTRIBUTES.iter().any(|name| self.attributes.contains_key(*name)) {
            return Ok(None);
        }
        let (class, place): (String, Place) = serde_json::from_str(&self.body).map_err(|_| {
            NotAPointer(
                "that is [\"software.amazon.payloadoffloading.PayloadS3Pointer\",{\"s3BucketName\":..,\"s3Key\":..}]",
            )
        })?;
        let class = class.rsplit('.').next().unwrap_or_default();
        if !CLASSES.contains(&class) {
            return Err(NotAPointer("it is of a class that is not known"));
        }
        Pointer::new(place.s3_bucket_name, place.s3_key).map(Some)
    }

    /// The message as if it had come whole: with this body, and without the attribute that spoke of it.
    pub(crate) fn made_whole(&self, body: String) -> Self {
        let mut attributes = self.attributes.clone();
        attributes.retain(|name, _| !RESERVED_ATTRIBUTES.contains(&name.as_str()));
        Self { body, attributes, ..self.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::{super::Attribute, *};

    const TODAY: &str =
        r#"["software.amazon.payloadoffloading.PayloadS3Pointer",{"s3BucketName":"bodies","s3Key":"a/1"}]"#;

    fn message(body: &str, attributes: &[&str]) -> Message {
        let number = || Attribute { data_type: "Number".into(), ..Attribute::text("300000") };
        let attributes = attributes.iter().map(|name| ((*name).to_owned(), number())).collect();
        Message { body: body.into(), attributes, ..Message::default() }
    }

    #[test]
    fn a_pointer_of_every_generation_and_library_is_recognised() {
        for body in [
            TODAY,
            r#"["com.amazon.sqs.javamessaging.MessageS3Pointer",{"s3BucketName":"bodies","s3Key":"a/1"}]"#,
            // As Python's `json.dumps` writes it.
            r#"["software.amazon.payloadoffloading.PayloadS3Pointer", {"s3BucketName": "bodies", "s3Key": "a/1"}]"#,
            r#"["awsv2.repackaged.software.amazon.payloadoffloading.PayloadS3Pointer",{"s3Key":"a/1","s3BucketName":"bodies"}]"#,
            r#"["software.amazon.payloadoffloading.PayloadS3Pointer",{"s3BucketName":"bodies","s3Key":"a\/1","later":1}]"#,
        ] {
            for name in RESERVED_ATTRIBUTES {
                let pointer = message(body, &[name, "other"]).pointer().expect(body).expect(body);
                assert_eq!((pointer.bucket(), pointer.key()), ("bodies", "a/1"), "{body}");
            }
        }
    }

    #[test]
    fn a_body_that_looks_like_a_pointer_is_a_body_unless_the_attribute_says_otherwise() {
        assert_eq!(message(TODAY, &[]).pointer(), Ok(None));
        assert_eq!(message(TODAY, &["extendedpayloadsize"]).pointer(), Ok(None));
    }

    #[test]
    fn t4_the_attribute_with_any_other_body_is_an_error_that_does_not_tell_the_body() {
        let place = |bucket: &str, key: &str| {
            serde_json::json!(["a.PayloadS3Pointer", { "s3BucketName": bucket, "s3Key": key }]).to_string()
        };
        for body in [
            String::new(),
            r#"{"id":"secret"}"#.to_owned(),
            r#""secret""#.to_owned(),
            "[]".to_owned(),
            r#"["a.PayloadS3Pointer"]"#.to_owned(),
            r#"["a.PayloadS3Pointer",{"s3BucketName":"bodies"}]"#.to_owned(),
            r#"["a.PayloadS3Pointer",{"s3BucketName":"bodies","s3Key":7}]"#.to_owned(),
            r#"["a.PayloadS3Pointer",{"s3BucketName":"bodies","s3BucketName":"secret","s3Key":"k"}]"#.to_owned(),
            r#"["a.PayloadS3Pointer",{"s3BucketName":"bodies","s3Key":"k"},"secret"]"#.to_owned(),
            r#"["secret.Runtime",{"s3BucketName":"bodies","s3Key":"k"}]"#.to_owned(),
            r#"["PayloadS3Pointer.secret",{"s3BucketName":"bodies","s3Key":"k"}]"#.to_owned(),
            format!("{TODAY} secret"),
            place("", "k"),
            place("secret/..", "k"),
            place("../secret", "k"),
            place("...", "k"),
            place("secret@example.com", "k"),
            place("secret?x=y", "k"),
            place("arn:aws:s3:us-east-1:1:accesspoint/secret", "k"),
            place(&"b".repeat(256), "k"),
            place("bodies", ""),
            place("bodies", &"k".repeat(LONGEST_KEY + 1)),
        ] {
            let error = message(&body, &["ExtendedPayloadSize"]).pointer().expect_err(&body);
            assert!(!error.to_string().contains("secret"), "{error}");
        }
    }

    #[test]
    fn a_message_that_was_made_whole_is_as_it_was_sent() {
        let mut pointer = message(TODAY, &["ExtendedPayloadSize", "SQSLargePayloadSize", "other"]);
        pointer.id = "m1".into();
        let whole = pointer.made_whole("{}".into());
        assert_eq!(whole, Message { id: "m1".into(), ..message("{}", &["other"]) });
    }

    #[test]
    fn what_a_sender_chose_cannot_break_a_line_of_the_log() {
        let pointer = Pointer::new("bodies", "a\nb").expect("a key may have it");
        assert_eq!(pointer.to_string(), r"s3://bodies/a\nb");
    }
}
