//! Methods that set options one by one.

/// Declares chainable methods that set fields of a struct of options; `const` if the fields have no
/// destructors. A comment of a field goes on the method, behind what is said of every method.
macro_rules! setters {
    (const $options:ident: $($(#[$doc:meta])* $field:ident: $kind:ty),+ $(,)?) => {
        impl $options {
            $(crate::core::setters::setters!(@one (const) $(#[$doc])* $field: $kind);)+
        }
    };
    ($options:ident: $($(#[$doc:meta])* $field:ident: $kind:ty),+ $(,)?) => {
        impl $options {
            $(crate::core::setters::setters!(@one () $(#[$doc])* $field: $kind);)+
        }
    };
    (@one ($($constant:tt)?) $(#[$doc:meta])* $field:ident: $kind:ty) => {
        #[doc = concat!(
            "The same options with another [`", stringify!($field), "`](Self#structfield.",
            stringify!($field), ")."
        )]
        $(#[$doc])*
        #[must_use]
        pub $($constant)? fn $field(mut self, $field: $kind) -> Self {
            self.$field = $field;
            self
        }
    };
}

pub(crate) use setters;
