//! The real `leasehold`, as a process: signals, exit codes, exec and HTTP handlers, and what happens when it is killed.
//! SQS and DynamoDB are the embedded engine, in this process.
#![cfg(all(unix, feature = "demo"))]
#![expect(clippy::expect_used, reason = "helpers of tests, which clippy takes for production code here")]

mod apps;
mod bench;
mod cases;
mod collector;
mod command;
mod config;
mod crash;
mod credentials;
mod demo;
mod dev;
mod dlq;
mod doctor;
mod ecs;
mod freeze;
mod full_disk;
mod guard_command;
mod health;
mod hole;
mod http;
mod jobs;
mod kill;
#[cfg(feature = "lambda")]
mod lambda;
mod moments;
mod outage;
mod pause;
mod proxy;
mod replies;
mod run;
mod send;
mod stand_in;
mod start;
mod steps;
mod stop;
mod sweep;
mod throttle;
mod vanish;
mod worker;
mod thousands;
