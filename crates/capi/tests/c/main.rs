//! The library as C sees it: the header, examples, and programs in C that call every function.

mod against_model;
mod functions;
mod header;
mod hostile;
mod programs;
