"""All stages through one optimizer step, what each second went to, and what sets its length."""
