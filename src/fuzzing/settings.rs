//! Configuration from variables, one on each line, without the prefix that all have.

use std::collections::BTreeMap;

use crate::config::Config;

/// What was read fits together and can be told; what was not comes with what mends it.
pub fn settings(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let lines = text.lines().filter_map(|line| line.split_once('='));
    let vars: BTreeMap<String, String> =
        lines.map(|(name, value)| (format!("LEASEHOLD_{name}"), value.to_owned())).collect();
    for read in [Config::from_vars(vars.clone()), Config::from_vars_for_tools(vars.clone())] {
        match read {
            Ok((config, warnings)) => {
                warnings.iter().for_each(|warning| drop(warning.to_string()));
                let problems: Vec<_> = config.check().into_iter().filter(|_| !config.queues.is_empty()).collect();
                assert_eq!(problems, []);
                let _ = config.notes(&config.explain(&vars));
            }
            Err(problems) => {
                assert!(problems.iter().all(|problem| !problem.what.is_empty() && !problem.mend.is_empty()));
            }
        }
    }
}
