"""What a layer costs as the job's software runs it: its operators, casts, recomputation, what it sends."""
