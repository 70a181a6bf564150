//! The test kit: queues and a guard in memory, and faults on request.
