"""What every layout takes and needs at least: whole blocks of layouts screened at once."""
