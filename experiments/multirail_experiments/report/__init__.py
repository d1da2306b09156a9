"""Pages that are generated from the newest results."""

from multirail_experiments.report.readme import write_readme
from multirail_experiments.report.summary import write_results

__all__ = ["write_readme", "write_results"]
