//! How large the tables of a plane are that lie in memory of a fixed size: BPF maps, a device's buffers.

use lpm::{Capacity4, Capacity6, Error, Layout4, Layout6, Rib, Section};

/// Room for prefixes longer than /24 in any case: /24s, and /16s that they are in. 2 and 1 MiB.
const LEAST4: [usize; 2] = [1 << 12, 1 << 10];
/// Room for IPv6 prefixes in any case: pages, cells, lines, steps; 4 MiB, 256 KiB, 2 MiB, 1 MiB.
const LEAST6: [usize; 4] = [1 << 8, 1 << 16, 1 << 15, 1 << 16];

/// The layout and the room of both families' tables.
#[derive(Debug)]
pub(crate) struct Shape {
    pub(crate) layout4: Layout4,
    pub(crate) room4: Capacity4,
    pub(crate) room6: Capacity6,
}

impl Shape {
    /// For at least so many times what the prefixes need, and no less than [`Shape::least`].
    ///
    /// # Errors
    /// Prefixes that no table holds.
    pub(crate) fn of(
        layout4: Layout4,
        growth: usize,
        v4: &Rib<u32>,
        v6: &Rib<u128>,
    ) -> Result<Self, Error> {
        let room4 = Capacity4::of(v4, growth);
        let [groups, pages] = LEAST4;
        Ok(Self {
            layout4,
            room4: Capacity4::new(
                room4.group_count().max(groups),
                room4.page_count().max(pages),
            ),
            room6: at_least(&Capacity6::of(v6, growth)?),
        })
    }

    /// For no prefixes.
    pub(crate) fn least(layout4: Layout4) -> Self {
        let [groups, pages4] = LEAST4;
        let [pages, cells, lines, steps] = LEAST6;
        Self {
            layout4,
            room4: Capacity4::new(groups, pages4),
            room6: Capacity6::new(pages, cells, lines, steps),
        }
    }

    pub(crate) fn sections4(&self) -> Vec<Section> {
        self.room4.sections(self.layout4)
    }

    pub(crate) fn sections6(&self) -> Vec<Section> {
        self.room6.sections(Layout6::Paged)
    }
}

fn at_least(room: &Capacity6) -> Capacity6 {
    let sections = room.sections(Layout6::Paged);
    let of = |name, size, least: usize| {
        let section = sections.iter().find(|section| section.name == name);
        section.map_or(least, |section| least.max(section.bytes / size))
    };
    let [pages, cells, lines, steps] = LEAST6;
    Capacity6::new(
        of("pages", 1 << 14, pages),
        of("cells", 4, cells),
        of("lines", 64, lines),
        of("steps", 16, steps),
    )
}
