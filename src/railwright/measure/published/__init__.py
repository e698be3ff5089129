"""Published collectives, counts of designs and effects of fabrics replayed."""
