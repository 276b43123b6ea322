//! Finds the structures of a program that are plain data, by the type information in its object.

use std::collections::BTreeMap;
use std::path::Path;

use libbpf_rs::HasSize as _;
use libbpf_rs::btf::types::{Array, Composite, Int, IntEncoding, MemberAttr};
use libbpf_rs::btf::{Btf, BtfKind, BtfType, TypeId};

/// Rust code that implements [`Plain`](crate::Plain) for each plain structure of a skeleton's `types`.
pub(crate) fn implementations(object: &Path) -> String {
    let btf = Btf::from_path(object).expect("clang writes type information");
    let mut declared: BTreeMap<String, Vec<BtfType<'_>>> = BTreeMap::new();
    for id in (1..btf.len()).filter_map(|id| u32::try_from(id).ok()) {
        let Some(one) = btf.type_by_id::<BtfType<'_>>(TypeId::from(id)) else {
            continue;
        };
        if let Some(name) = one.name().filter(|_| has_tag(one.kind())) {
            let name = name.to_string_lossy().into_owned();
            declared.entry(name).or_default().push(one);
        }
    }
    let mut code = String::new();
    for (name, types) in declared {
        // The generator numbers types that share a name.
        if let [one] = types[..]
            && one.kind() == BtfKind::Struct
            && let Some(size) = plain_size(&btf, one)
        {
            code += &format!(
                "const _: () = assert!(size_of::<types::{name}>() == {size});\n\
                 // SAFETY: its type information has integers and arrays of them, without gaps.\n\
                 unsafe impl ::bpf::Plain for types::{name} {{}}\n",
            );
        }
    }
    code
}

fn has_tag(kind: BtfKind) -> bool {
    matches!(
        kind,
        BtfKind::Struct | BtfKind::Union | BtfKind::Enum | BtfKind::Enum64
    )
}

/// The size in bytes of a type of which every byte belongs to an integer; `None` for other types.
fn plain_size(btf: &Btf<'_>, of: BtfType<'_>) -> Option<usize> {
    let of = of.skip_mods_and_typedefs();
    match of.kind() {
        BtfKind::Int => {
            let int = Int::try_from(of).ok()?;
            // Only two bytes are a Rust `bool`.
            (!matches!(int.encoding, IntEncoding::Bool)).then(|| usize::from(int.bits / 8))
        }
        BtfKind::Array => {
            let array = Array::try_from(of).ok()?;
            Some(plain_size(btf, array.contained_type())? * array.capacity())
        }
        BtfKind::Struct | BtfKind::Union => {
            let composite = Composite::try_from(of).ok()?;
            covers(btf, &composite).then(|| composite.size())
        }
        _ => None,
    }
}

/// Whether plain members leave no gap: one after the other in a structure, each alone in a union.
fn covers(btf: &Btf<'_>, composite: &Composite<'_>) -> bool {
    let mut end = 0;
    for member in (0..composite.len()).filter_map(|index| composite.get(index)) {
        let MemberAttr::Normal { offset } = member.attr else {
            return false;
        };
        let start = offset as usize / 8;
        let size = btf
            .type_by_id::<BtfType<'_>>(member.ty)
            .and_then(|member| plain_size(btf, member));
        match size {
            Some(size) if composite.is_struct && start == end => end += size,
            Some(size) if !composite.is_struct && size == composite.size() => end = size,
            _ => return false,
        }
    }
    end == composite.size()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn structures_with_gaps_pointers_or_booleans_are_left_out() {
        let folder = tempfile::tempdir().expect("a folder for the program");
        let (source, object) = (folder.path().join("t.bpf.c"), folder.path().join("t.bpf.o"));
        let program = "
            typedef unsigned int u32;
            struct inner { unsigned short half[2]; };
            struct whole { u32 one; union { u32 word; unsigned char bytes[4]; } two; struct inner three[2]; };
            struct gap { u32 one; unsigned long long two; };
            struct tail { unsigned long long one; u32 two; };
            struct pointer { struct whole *to; };
            struct boolean { _Bool is; };
            struct bits { u32 low : 16, high : 16; };
            struct whole whole; struct gap gap; struct tail tail; struct pointer pointer;
            struct boolean boolean; struct bits bits;";
        fs::write(&source, program).expect("a writable folder");
        crate::compile(&source, &object);
        let code = implementations(&object);
        let plain = |name: &str| code.contains(&format!("Plain for types::{name} "));
        assert!(plain("inner") && plain("whole"), "{code}");
        assert!(code.contains("size_of::<types::whole>() == 16"), "{code}");
        for name in ["gap", "tail", "pointer", "boolean", "bits"] {
            assert!(!plain(name), "{name}");
        }
    }
}
