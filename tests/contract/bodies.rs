//! What bodies that are elsewhere must do, behaviour by behaviour.
//!
//! `bodies_contract!(name, fixture)` makes one test of each behaviour for one adapter.
#![expect(clippy::expect_used, reason = "helpers of tests, which clippy takes for production code here")]

use async_trait::async_trait;
use leasehold::{
    bodies::{Bodies, BodyError},
    message::Pointer,
};

/// One adapter, ready to be used, with a bucket of its own.
#[async_trait]
pub(crate) trait BodiesFixture: Sync {
    fn bodies(&self) -> &dyn Bodies;

    fn bucket(&self) -> &str;

    /// Puts an object into the bucket.
    async fn put(&self, key: &str, body: &[u8]);
}

const LIMIT: usize = 4 * 1024 * 1024;

fn at(fixture: &dyn BodiesFixture, key: &str) -> Pointer {
    Pointer::new(fixture.bucket(), key).expect("good")
}

pub(crate) async fn a_body_comes_as_it_was_put(fixture: &dyn BodiesFixture) {
    for body in [String::new(), "h\u{e9}llo \u{1f600}\n".to_owned(), "0123456789abcdef".repeat(200_000)] {
        fixture.put("k", body.as_bytes()).await;
        let got = fixture.bodies().get(&at(fixture, "k"), LIMIT).await.expect("a body");
        assert!(got == body, "{} bytes came of {}", got.len(), body.len());
    }
}

pub(crate) async fn a_key_names_its_own_object_whatever_stands_in_it(fixture: &dyn BodiesFixture) {
    let keys =
        ["a b", "a+b", "a%20b", "\u{e4}/\u{f6}", "a//b", "a?x=y", "a#f", "a/./b", "a&'\"<>*~b", "a=b;c,d:e@f", "..."];
    for key in keys {
        fixture.put(key, key.as_bytes()).await;
    }
    for key in keys {
        let got = fixture.bodies().get(&at(fixture, key), LIMIT).await;
        assert_eq!(got.expect(key), key);
    }
}

pub(crate) async fn what_is_not_there_is_missing(fixture: &dyn BodiesFixture) {
    fixture.put("k", b"x").await;
    for key in ["none", "k/", "K"] {
        let got = fixture.bodies().get(&at(fixture, key), LIMIT).await;
        assert!(matches!(got, Err(BodyError::Missing)), "{key}: {got:?}");
    }
    let elsewhere = Pointer::new(format!("{}-not-there", fixture.bucket()), "k").expect("good");
    let got = fixture.bodies().get(&elsewhere, LIMIT).await;
    assert!(matches!(got, Err(BodyError::NoBucket)), "{got:?}");
}

pub(crate) async fn a_body_at_the_limit_comes_and_a_larger_one_does_not(fixture: &dyn BodiesFixture) {
    fixture.put("k", b"12345").await;
    assert_eq!(fixture.bodies().get(&at(fixture, "k"), 5).await.expect("fits"), "12345");
    let got = fixture.bodies().get(&at(fixture, "k"), 4).await;
    assert!(matches!(got, Err(BodyError::TooLarge { limit: 4 })), "{got:?}");
}

pub(crate) async fn what_is_not_utf8_is_no_body(fixture: &dyn BodiesFixture) {
    fixture.put("k", &[b'a', 0xc3]).await;
    let got = fixture.bodies().get(&at(fixture, "k"), LIMIT).await;
    assert!(matches!(got, Err(BodyError::NotText)), "{got:?}");
}

pub(crate) async fn a_delete_takes_one_object_and_can_be_said_twice(fixture: &dyn BodiesFixture) {
    for key in ["k", "k/1"] {
        fixture.put(key, b"x").await;
    }
    for _ in 0..2 {
        fixture.bodies().delete(&at(fixture, "k")).await.expect("deleted");
        let got = fixture.bodies().get(&at(fixture, "k"), LIMIT).await;
        assert!(matches!(got, Err(BodyError::Missing)), "{got:?}");
    }
    assert!(fixture.bodies().get(&at(fixture, "k/1"), LIMIT).await.is_ok());
}

/// Makes a module with one test for each behaviour. The fixture's expression is evaluated inside each test, may await, and
/// may `return` where its service is not there.
macro_rules! bodies_contract {
    ($module:ident, $fixture:expr) => {
        $crate::bodies::bodies_contract! {
            @each $module, $fixture,
            a_body_comes_as_it_was_put,
            a_key_names_its_own_object_whatever_stands_in_it,
            what_is_not_there_is_missing,
            a_body_at_the_limit_comes_and_a_larger_one_does_not,
            what_is_not_utf8_is_no_body,
            a_delete_takes_one_object_and_can_be_said_twice,
        }
    };
    (@each $module:ident, $fixture:expr, $($behaviour:ident,)*) => {
        mod $module {
            use super::*;
            $(
                #[tokio::test]
                async fn $behaviour() {
                    $crate::bodies::$behaviour(&$fixture).await;
                }
            )*
        }
    };
}
pub(crate) use bodies_contract;
