//! The command line: effects, output and exit status of every command.

mod advice;
mod asking;
mod attributes;
mod commands;
mod copying;
mod datasets;
mod ends;
mod further;
mod helper;
mod images;
mod kernel;
mod labels;
mod making;
mod media;
mod mounting;
mod moving;
mod over;
mod printing;
mod quotas;
mod scale;
mod service;
mod spelling;
mod suites;
mod support;
mod through;
mod transfer;
