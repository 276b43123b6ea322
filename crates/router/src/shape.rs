//! How large the tables of a plane are that lie in memory of a fixed size: BPF maps, a device's buffers.

use lpm::{Capacity4, Capacity6, Error, Layout4, Layout6, Rib, Section};

/// Minimum capacity for prefixes longer than /24: /24s, and the /16s that contain them. 2 and 1 MiB.
const MIN_CAPACITY4: [usize; 2] = [1 << 12, 1 << 10];
/// Minimum capacity for IPv6 prefixes: pages, cells, lines, steps; 4 MiB, 256 KiB, 2 MiB, 1 MiB.
const MIN_CAPACITY6: [usize; 4] = [1 << 8, 1 << 16, 1 << 15, 1 << 16];

/// The layout and the room of both families' tables.
#[derive(Debug)]
pub(crate) struct Shape {
    pub(crate) layout4: Layout4,
    pub(crate) room4: Capacity4,
    pub(crate) room6: Capacity6,
}

impl Shape {
    /// Capacity for `growth` times what the prefixes need, and at least [`Shape::minimum`].
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
        let [groups, pages] = MIN_CAPACITY4;
        Ok(Self {
            layout4,
            room4: Capacity4::new(
                room4.group_count().max(groups),
                room4.page_count().max(pages),
            ),
            room6: at_least(&Capacity6::of(v6, growth)?),
        })
    }

    /// The minimum capacity, without prefixes.
    pub(crate) fn minimum(layout4: Layout4) -> Self {
        let [groups, pages4] = MIN_CAPACITY4;
        let [pages, cells, lines, steps] = MIN_CAPACITY6;
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
    let [pages, cells, lines, steps] = MIN_CAPACITY6;
    Capacity6::new(
        of("pages", 1 << 14, pages),
        of("cells", 4, cells),
        of("lines", 64, lines),
        of("steps", 16, steps),
    )
}
