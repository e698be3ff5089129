"""Steps in others' formats: execution traces, simulators' workloads, schedules, and profiles of real steps."""
