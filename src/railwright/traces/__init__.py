"""Steps in others' formats: execution traces, simulators' workloads, schedules, profiles of real steps."""
