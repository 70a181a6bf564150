//! Where findings and passed checks are gathered, and put in the order in which they are told.

use std::collections::BTreeMap;

use super::{Check, Finding, P99, Report, Severity, Subject};

/// What was found so far.
#[derive(Debug, Default)]
pub(super) struct Sheet {
    findings: Vec<Finding>,
    passed: usize,
}

impl Sheet {
    /// Notes what a check found; nothing is a check that passed.
    pub(super) fn note(&mut self, found: Option<Finding>) {
        match found {
            Some(finding) => self.findings.push(finding),
            None => self.passed += 1,
        }
    }

    /// By subject, that with the worst first; of each the worst first.
    pub(super) fn report(mut self, create: Vec<String>, p99: BTreeMap<String, P99>, reached: bool) -> Report {
        let mut worst: BTreeMap<Subject, Severity> = BTreeMap::new();
        for Finding { subject, severity, .. } in &self.findings {
            let worst = worst.entry(subject.clone()).or_insert(*severity);
            *worst = (*worst).min(*severity);
        }
        self.findings
            .sort_by_key(|finding| (worst.get(&finding.subject).copied(), finding.subject.clone(), finding.severity));
        Report { findings: self.findings, passed: self.passed, create, p99, reached }
    }
}

impl Check {
    pub(super) fn error(&self, subject: Subject, found: impl Into<String>, mend: impl Into<Option<String>>) -> Finding {
        self.found(Severity::Error, subject, found.into(), mend.into())
    }

    pub(super) fn warning(
        &self,
        subject: Subject,
        found: impl Into<String>,
        mend: impl Into<Option<String>>,
    ) -> Finding {
        self.found(Severity::Warning, subject, found.into(), mend.into())
    }

    pub(super) fn note(&self, subject: Subject, found: impl Into<String>, mend: impl Into<Option<String>>) -> Finding {
        self.found(Severity::Note, subject, found.into(), mend.into())
    }

    pub(super) fn found(&self, severity: Severity, subject: Subject, found: String, mend: Option<String>) -> Finding {
        Finding { check: self.code, severity, subject, found, why: self.why, mend }
    }
}
