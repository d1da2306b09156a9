//! Move data between machines over every network path they have.
