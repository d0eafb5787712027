"""From syntax to plans: names are looked up, types checked, and the same nodes built as the Python API builds."""
