"""Verification (rule 10): check a query under disorder, and find the smallest stream that shows a failure."""

from headrace.testing.verify.campaign import (
    VerificationFailure,
    VerificationReport,
    verify_cases,
    verify_intent,
    verify_node,
)

__all__ = ["VerificationFailure", "VerificationReport", "verify_cases", "verify_intent", "verify_node"]
