//! The meters of a task of ECS that protects itself from scaling in.

use super::{
    Count, Gauge, Telemetry,
    labels::{Fixed, ProtectionResult},
    table,
};

/// The meters.
#[derive(Debug)]
pub(crate) struct ProtectionMeters {
    held: Gauge,
    results: Vec<Count>,
}

impl ProtectionMeters {
    pub(super) fn new(telemetry: &Telemetry) -> Self {
        let count = |result: &ProtectionResult| telemetry.count(table::PROTECTIONS, &[("result", result.as_str())]);
        Self {
            held: telemetry.gauge(table::PROTECTED, &[]),
            results: ProtectionResult::ALL.iter().map(count).collect(),
        }
    }

    /// Whether the task is protected.
    pub(crate) fn held(&self, held: bool) {
        self.held.set(f64::from(u8::from(held)));
    }

    /// A request came to that.
    pub(crate) fn result(&self, result: ProtectionResult) {
        if let Some(count) = self.results.get(result.index()) {
            count.one();
        }
    }

    #[cfg(test)]
    pub(crate) fn count(&self, result: ProtectionResult) -> u64 {
        self.results[result.index()].total()
    }
}
