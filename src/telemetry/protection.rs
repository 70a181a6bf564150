//! The meters of a task of ECS that protects itself from scaling in.

use super::{Gauge, Telemetry, by::By, labels::ProtectionResult, table};

/// The meters.
#[derive(Debug)]
pub(crate) struct ProtectionMeters {
    held: Gauge,
    results: By<ProtectionResult>,
}

impl ProtectionMeters {
    pub(super) fn new(telemetry: &Telemetry) -> Self {
        let results = By::counts(telemetry, table::PROTECTIONS, &[], "result");
        Self { held: telemetry.gauge(table::PROTECTED, &[]), results }
    }

    /// Whether the task is protected.
    pub(crate) fn held(&self, held: bool) {
        self.held.set(f64::from(u8::from(held)));
    }

    /// A request came to that.
    pub(crate) fn result(&self, result: ProtectionResult) {
        self.results.of(result).one();
    }

    #[cfg(test)]
    pub(crate) fn count(&self, result: ProtectionResult) -> u64 {
        self.results.of(result).total()
    }
}
