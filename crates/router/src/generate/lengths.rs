//! How long the prefixes of the Internet are, and where they lie: counted in a full table of October 2025
//! (901,899 IPv4 and 160,147 IPv6 prefixes), `internal/tests/testdata/prefixes.txt.gz` of the public
//! repository gaissmai/bart, as its commit 07893fa left it.

/// Prefixes of a length.
pub(super) type Count = (u8, u32);

pub(super) const LENGTHS4: [Count; 25] = [
    (8, 16),
    (9, 13),
    (10, 38),
    (11, 103),
    (12, 299),
    (13, 581),
    (14, 1_203),
    (15, 2_100),
    (16, 13_490),
    (17, 8_235),
    (18, 13_798),
    (19, 24_870),
    (20, 42_611),
    (21, 50_750),
    (22, 108_623),
    (23, 96_510),
    (24, 537_698),
    (25, 20),
    (26, 3),
    (27, 11),
    (28, 18),
    (29, 17),
    (30, 3),
    (31, 3),
    (32, 886),
];

pub(super) const LENGTHS6: [Count; 46] = [
    (16, 1),
    (19, 1),
    (20, 16),
    (21, 3),
    (22, 7),
    (23, 8),
    (24, 30),
    (25, 8),
    (26, 15),
    (27, 20),
    (28, 193),
    (29, 4_371),
    (30, 650),
    (31, 284),
    (32, 22_548),
    (33, 2_926),
    (34, 2_603),
    (35, 1_043),
    (36, 5_996),
    (37, 880),
    (38, 1_617),
    (39, 1_377),
    (40, 13_418),
    (41, 903),
    (42, 2_301),
    (43, 1_001),
    (44, 14_365),
    (45, 1_553),
    (46, 3_039),
    (47, 3_153),
    (48, 75_488),
    (49, 11),
    (50, 3),
    (52, 1),
    (55, 1),
    (56, 24),
    (58, 20),
    (60, 2),
    (64, 184),
    (112, 2),
    (122, 1),
    (124, 4),
    (125, 9),
    (126, 19),
    (127, 42),
    (128, 6),
];

/// Of a thousand prefixes, those that lie within another one.
pub(super) const NESTED_PER_THOUSAND4: u64 = 507;
pub(super) const NESTED_PER_THOUSAND6: u64 = 569;

/// First bytes of IPv4 addresses that have routes: 1 to 223, but for 10 and 127.
pub(super) const FIRST4: std::ops::RangeInclusive<u32> = 1..=223;
pub(super) const WITHOUT4: [u32; 2] = [10, 127];

/// First twelve bits of IPv6 prefixes, and how many begin so.
pub(super) const FIRST6: [(u16, u32); 9] = [
    (0x240, 52_268),
    (0x2a0, 32_244),
    (0x280, 28_380),
    (0x200, 20_154),
    (0x260, 19_437),
    (0x262, 2_886),
    (0x2a1, 2_813),
    (0x2c0, 1_479),
    (0x261, 470),
];
