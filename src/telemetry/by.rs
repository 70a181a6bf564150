//! One meter for each value of a label.
//!
//! For labels with a fixed set of values: all are made at once, so that counting looks nothing up.

use std::marker::PhantomData;

use super::{Count, Telemetry, labels::Fixed};

/// One of `T` for each value of a label.
#[derive(Debug)]
pub(super) struct By<L, T = Count> {
    all: Vec<T>,
    of: PhantomData<fn(L)>,
}

impl<L: Fixed, T> By<L, T> {
    pub(super) fn new(make: impl Fn(L) -> T) -> Self {
        Self { all: L::ALL.iter().map(|label| make(*label)).collect(), of: PhantomData }
    }

    pub(super) fn of(&self, label: L) -> &T {
        // There is one for each.
        &self.all[label.index()]
    }
}

impl<L: Fixed> By<L> {
    /// Counts with these labels beside that one.
    pub(super) fn counts(
        telemetry: &Telemetry,
        name: &'static str,
        labels: &[(&'static str, &str)],
        by: &'static str,
    ) -> Self {
        Self::new(|value: L| {
            let labels: Vec<_> = labels.iter().copied().chain([(by, value.as_str())]).collect();
            telemetry.count(name, &labels)
        })
    }
}
