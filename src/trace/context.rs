//! Trace contexts as they travel with messages: W3C's `traceparent` and `tracestate`, and X-Ray's trace header.
//!
//! Pure. Anybody who may send can have written them: what is not exactly as it should be is none, and so never becomes a
//! header or a variable.

use crate::message::Message;

/// The longest `tracestate` that goes along; W3C has everybody carry that much.
/// <https://www.w3.org/TR/trace-context/#tracestate-limits>
const LONGEST_STATE: usize = 512;

/// So many members can a `tracestate` have.
const MOST_MEMBERS: usize = 32;

/// X-Ray's header has fields that come and go; what is longer is none.
const LONGEST_XRAY: usize = 512;

/// A span of somebody's trace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Context {
    /// In 32 hexadecimal digits.
    pub(crate) trace_id: String,
    /// In 16 hexadecimal digits.
    span_id: String,
    is_sampled: bool,
    /// `tracestate`, as it came.
    pub(crate) state: Option<String>,
}

impl Context {
    /// What a message's producer has sent along: W3C's, or else X-Ray's.
    pub(crate) fn of_producer(message: &Message) -> Option<Self> {
        Self::w3c_of(message).or_else(|| Self::xray(message.trace_header.as_deref()?))
    }

    /// Of the message attributes, which instrumented producers set.
    pub(super) fn w3c_of(message: &Message) -> Option<Self> {
        let mut context = Self::w3c(message.attribute("traceparent")?)?;
        context.state = message.attribute("tracestate").filter(|state| is_state(state)).map(str::to_owned);
        Some(context)
    }

    /// `00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01`; of later versions, what begins so.
    /// <https://www.w3.org/TR/trace-context/#traceparent-header>
    fn w3c(text: &str) -> Option<Self> {
        let (mut parts, is_first) = (text.splitn(5, '-'), text.starts_with("00-"));
        let (version, trace_id, span_id, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        let rest = parts.next();
        let is_good = is_id(version, 2, false) && version != "ff" && is_id(flags, 2, false);
        let is_plain = text.len() <= LONGEST_STATE && text.bytes().all(|byte| byte.is_ascii_graphic());
        let has_ids = is_id(trace_id, 32, true) && is_id(span_id, 16, true);
        if !is_good || !has_ids || !is_plain || (is_first && rest.is_some()) {
            return None;
        }
        let is_sampled = u8::from_str_radix(flags, 16).ok()? & 1 == 1;
        Some(Self { trace_id: trace_id.to_owned(), span_id: span_id.to_owned(), is_sampled, state: None })
    }

    /// `Root=1-5759e988-bd862e3fe1be46a994272793;Parent=53995c3f42cd8ad8;Sampled=1`. Without a parent it names no span.
    /// <https://docs.aws.amazon.com/xray/latest/devguide/xray-concepts.html#xray-concepts-tracingheader>
    fn xray(text: &str) -> Option<Self> {
        let trace_id = xray_root(text)?;
        let span_id = xray_field(text, "Parent").filter(|id| is_id(id, 16, true))?.to_owned();
        let is_sampled = xray_field(text, "Sampled") == Some("1");
        Some(Self { trace_id, span_id, is_sampled, state: None })
    }
}

/// Whether it is X-Ray's header, with a parent or without one.
pub(super) fn is_xray(text: &str) -> bool {
    xray_root(text).is_some()
}

fn xray_root(text: &str) -> Option<String> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"=-;:|._?,/ ".contains(&byte);
    if text.len() > LONGEST_XRAY || !text.bytes().all(is_plain) {
        return None;
    }
    let (time, rest) = xray_field(text, "Root")?.strip_prefix("1-")?.split_once('-')?;
    let trace_id = format!("{time}{rest}");
    (time.len() == 8 && is_id(&trace_id, 32, true)).then_some(trace_id)
}

fn xray_field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let mut fields = text.split(';').filter_map(|field| field.trim().split_once('='));
    fields.find(|(field, _)| *field == name).map(|(_, value)| value)
}

#[cfg(feature = "otel")]
impl Context {
    /// Of the span that is entered, if it is recorded by anybody.
    pub(super) fn of_current_span() -> Option<Self> {
        use opentelemetry::trace::TraceContextExt as _;
        use tracing_opentelemetry::OpenTelemetrySpanExt as _;
        let context = tracing::Span::current().context();
        let span = context.span();
        let own = span.span_context();
        own.is_valid().then(|| Self {
            trace_id: own.trace_id().to_string(),
            span_id: own.span_id().to_string(),
            is_sampled: own.is_sampled(),
            state: Some(own.trace_state().header()).filter(|state| !state.is_empty()),
        })
    }

    /// As the SDK has it.
    pub(super) fn remote(&self) -> opentelemetry::trace::SpanContext {
        use opentelemetry::trace::{SpanContext, SpanId, TraceFlags, TraceId, TraceState};
        let flags = if self.is_sampled { TraceFlags::SAMPLED } else { TraceFlags::default() };
        let state = self.state.as_deref().and_then(|state| state.parse::<TraceState>().ok());
        // Both are hexadecimal by now.
        let trace_id = TraceId::from_hex(&self.trace_id).unwrap_or(TraceId::INVALID);
        let span_id = SpanId::from_hex(&self.span_id).unwrap_or(SpanId::INVALID);
        SpanContext::new(trace_id, span_id, flags, true, state.unwrap_or_default())
    }

    pub(super) fn to_traceparent(&self) -> String {
        format!("00-{}-{}-{:02x}", self.trace_id, self.span_id, u8::from(self.is_sampled))
    }

    /// In X-Ray's form, which takes any W3C trace id as it is.
    pub(super) fn to_xray(&self) -> String {
        let (time, rest) = self.trace_id.split_at(8);
        format!("Root=1-{time}-{rest};Parent={};Sampled={}", self.span_id, u8::from(self.is_sampled))
    }
}

/// Lower-case hexadecimal of that length; an id is not all zeros.
fn is_id(text: &str, length: usize, is_id: bool) -> bool {
    let is_hex = text.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte));
    text.len() == length && is_hex && (!is_id || text.bytes().any(|byte| byte != b'0'))
}

/// Members by commas, `key=value`, in W3C's characters.
fn is_state(text: &str) -> bool {
    let is_key = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "_-*/@".contains(c);
    let is_value = |c: char| (' '..='~').contains(&c) && c != '=';
    let members = || text.split(',').map(str::trim).filter(|member| !member.is_empty());
    let is_member = |member: &str| {
        member.split_once('=').is_some_and(|(key, value)| {
            !key.is_empty() && key.chars().all(is_key) && !value.is_empty() && value.chars().all(is_value)
        })
    };
    text.len() <= LONGEST_STATE && (1..=MOST_MEMBERS).contains(&members().count()) && members().all(is_member)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{
        message::Attribute,
        trace::{Carried, carried},
    };

    const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
    const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    const XRAY: &str = "Root=1-5759e988-bd862e3fe1be46a994272793;Parent=53995c3f42cd8ad8;Sampled=1";

    fn message(traceparent: &str, tracestate: &str, xray: Option<&str>) -> Message {
        let mut message = Message { trace_header: xray.map(str::to_owned), ..Message::default() };
        message.attributes.insert("traceparent".into(), Attribute::text(traceparent));
        message.attributes.insert("tracestate".into(), Attribute::text(tracestate));
        message
    }

    #[test]
    fn w3cs_context_is_read_as_its_standard_says() {
        let context = Context::w3c(PARENT).expect("a context");
        assert_eq!((context.trace_id.as_str(), context.span_id.as_str()), (TRACE, "b7ad6b7169203331"));
        assert!(context.is_sampled);
        assert!(Context::w3c(&PARENT.replace("-01", "-00")).is_some_and(|context| !context.is_sampled));
        assert!(Context::w3c(&format!("01{}-more", &PARENT[2..])).is_some(), "a later version");
        for bad in [
            "",
            "00",
            &PARENT.replace("00-", "ff-"),
            &format!("{PARENT}-more"),
            &PARENT.to_uppercase(),
            &PARENT.replace(TRACE, &"0".repeat(32)),
            &PARENT.replace("b7ad6b7169203331", &"0".repeat(16)),
            &PARENT[..54],
            &format!("{PARENT}\r\nEvil: 1"),
        ] {
            assert_eq!(Context::w3c(bad), None, "{bad}");
        }
    }

    #[test]
    fn xrays_header_is_the_same_trace_in_w3cs_form() {
        let context = Context::xray(XRAY).expect("a context");
        assert_eq!(context.trace_id, "5759e988bd862e3fe1be46a994272793");
        assert!(context.is_sampled && context.span_id == "53995c3f42cd8ad8");
        assert!(Context::xray(&format!("Self=1-a;{XRAY};Lineage=1:a|2")).is_some());
        assert!(Context::xray(&XRAY.replace("Sampled=1", "Sampled=?")).is_some_and(|context| !context.is_sampled));
        let root = XRAY.replace("Parent=53995c3f42cd8ad8;", "");
        assert!(is_xray(&root) && Context::xray(&root).is_none(), "a trace without a span");
        for bad in ["", "Root=1", &XRAY.replace("Parent", "parent"), &XRAY.replace("1-", "2-"), &format!("{XRAY}\n")] {
            assert_eq!(Context::xray(bad), None, "{bad}");
        }
        #[cfg(feature = "otel")]
        assert_eq!(context.to_xray(), XRAY);
    }

    #[test]
    fn a_producers_own_context_wins_over_that_of_aws_and_states_are_bounded() {
        let both = message(PARENT, "rojo=00f067aa0ba902b7, congo=t61@x", Some(XRAY));
        let context = Context::of_producer(&both).expect("a context");
        assert_eq!((context.trace_id.as_str(), context.state.as_deref()), (TRACE, both.attribute("tracestate")));
        let aws = Context::of_producer(&message("nonsense", "", Some(XRAY))).expect("a context");
        assert_eq!(aws.trace_id, "5759e988bd862e3fe1be46a994272793");
        for bad in ["", "no value", "A=1", "a=\r\nEvil: 1", &"a=1,".repeat(33), &format!("a={}", "x".repeat(512))] {
            assert_eq!(Context::w3c_of(&message(PARENT, bad, None)).and_then(|context| context.state), None, "{bad:?}");
        }
    }

    proptest! {
        #[test]
        fn what_is_carried_on_is_what_came_or_nothing_and_never_breaks_a_header(
            traceparent in "(00-)?[0-9a-f]{32}-[0-9a-f]{16}-0[01]|.{0,80}", state in ".{0,40}", xray in ".{0,80}|Root=1-[0-9a-f]{8}-[0-9a-f]{24};Parent=[0-9a-f]{16}.?",
        ) {
            let message = message(&traceparent, &state, Some(&xray));
            let Carried { traceparent: parent, tracestate, xray: header } = carried(&message);
            for (carried, came) in [(&parent, &traceparent), (&tracestate, &state), (&header, &xray)] {
                if let Some(carried) = carried {
                    prop_assert_eq!(carried, came);
                    prop_assert!(carried.bytes().all(|byte| (b' '..=b'~').contains(&byte)));
                }
            }
            prop_assert!(tracestate.is_none() || parent.is_some());
        }
    }
}
