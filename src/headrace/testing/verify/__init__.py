"""Verification as a feature (rule 10): is a query right under disorder? If not, the smallest stream that shows it."""

from headrace.testing.verify.campaign import (
    VerificationFailure,
    VerificationReport,
    verify_cases,
    verify_intent,
    verify_node,
)

__all__ = ["VerificationFailure", "VerificationReport", "verify_cases", "verify_intent", "verify_node"]
