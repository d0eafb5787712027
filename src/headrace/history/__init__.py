"""Any query as a batch query over history (rule 10.1): one translation, two engines."""
