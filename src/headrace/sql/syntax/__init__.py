"""What a text of the dialect says, as a tree: the statements of rule 8.5, queries, windows and expressions.

Nothing here knows what exists: names are names, calls are calls. The parser makes these trees, the printer turns them
into text again, the binder gives them a meaning. Every part remembers where in the text it stands (`at`, two offsets),
which does not count when trees are compared.
"""

from headrace.sql.syntax.expressions import (
    Between,
    Binary,
    Call,
    Case,
    Cast,
    Column,
    DateTime,
    Duration,
    Expression,
    In,
    IsNull,
    Like,
    Name,
    Named,
    Number,
    Over,
    Star,
    Text,
    Unary,
    Value,
)
from headrace.sql.syntax.parts import NOWHERE, Part, Span
from headrace.sql.syntax.queries import Entry, FromItem, Join, Limit, OrderKey, Query, Select, Subquery, Union
from headrace.sql.syntax.statements import (
    Ask,
    CreateSchema,
    CreateStream,
    CreateTable,
    Describe,
    Drop,
    EdgeLifetime,
    Explain,
    Insert,
    IntervalLifetime,
    Into,
    Merge,
    PhysicalLifetime,
    PointLifetime,
    Policy,
    Progress,
    Script,
    Set,
    Show,
    SourceClause,
    Split,
    SplitBranch,
    Statement,
    TypedColumn,
    Verify,
)
from headrace.sql.syntax.windows import (
    Application,
    Arrival,
    Bracket,
    CountWindow,
    DeltaWindow,
    FixedWindow,
    GridWindow,
    LandmarkWindow,
    Lifespan,
    Measure,
    Module,
    SessionWindow,
    SizeWindow,
    SnapshotWindow,
    Tuples,
    Window,
    WindowPolicies,
)

__all__ = [
    "NOWHERE", "Application", "Arrival", "Ask", "Between", "Binary", "Bracket", "Call", "Case", "Cast", "Column",
    "CountWindow", "CreateSchema", "CreateStream", "CreateTable", "DateTime", "DeltaWindow", "Describe", "Drop",
    "Duration", "EdgeLifetime", "Entry", "Explain", "Expression", "FixedWindow", "FromItem", "GridWindow", "In",
    "Insert", "IntervalLifetime", "Into", "IsNull", "Join", "LandmarkWindow", "Lifespan", "Like", "Limit", "Measure",
    "Merge", "Module", "Name", "Named", "Number", "OrderKey", "Over", "Part", "PhysicalLifetime", "PointLifetime",
    "Policy", "Progress", "Query", "Script", "Select", "SessionWindow", "Set", "Show", "SizeWindow", "SnapshotWindow",
    "SourceClause", "Span", "Split", "SplitBranch", "Star", "Statement", "Subquery", "Text", "Tuples", "TypedColumn",
    "Unary", "Union", "Value", "Verify", "Window", "WindowPolicies",
]  # fmt: skip
