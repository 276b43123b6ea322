//! A PNG file from rows of RGB pixels.

use std::io::Write;

use flate2::write::ZlibEncoder;
use flate2::{Compression, Crc};

/// Bytes of a pixel: 8 bits each of red, green and blue.
pub(super) const CHANNELS: usize = 3;

/// Encodes `pixels`, rows of `width` pixels from top to bottom.
pub(super) fn encode(width: u32, height: u32, pixels: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut header = Vec::with_capacity(13);
    header.extend(width.to_be_bytes());
    header.extend(height.to_be_bytes());
    // Bit depth 8, colour type RGB, and the only compression, filter and interlace methods in use.
    header.extend([8, 2, 0, 0, 0]);
    let stride = width as usize * CHANNELS;
    let mut compressor = ZlibEncoder::new(Vec::new(), Compression::best());
    let mut above = vec![0; stride];
    for row in pixels.chunks_exact(stride) {
        compressor.write_all(&filter(row, &above))?;
        above.copy_from_slice(row);
    }
    let data = compressor.finish()?;
    let mut file = b"\x89PNG\r\n\x1a\n".to_vec();
    chunk(&mut file, *b"IHDR", &header)?;
    chunk(&mut file, *b"IDAT", &data)?;
    chunk(&mut file, *b"IEND", &[])?;
    Ok(file)
}

/// A row behind the number of its filter: None or Up, whichever leaves fewer bytes that are not zero.
/// Rows of a figure repeat, and those that do not are mostly white.
fn filter(row: &[u8], above: &[u8]) -> Vec<u8> {
    const NONE: u8 = 0;
    const UP: u8 = 2;
    let up = row.iter().zip(above).map(|(now, up)| now.wrapping_sub(*up));
    let changes = up.clone().filter(|byte| *byte != 0).count();
    let plain = row.iter().filter(|byte| **byte != 0xff).count();
    if changes <= plain {
        std::iter::once(UP).chain(up).collect()
    } else {
        std::iter::once(NONE).chain(row.iter().copied()).collect()
    }
}

fn chunk(file: &mut Vec<u8>, kind: [u8; 4], data: &[u8]) -> std::io::Result<()> {
    let length = u32::try_from(data.len()).map_err(std::io::Error::other)?;
    let mut checksum = Crc::new();
    checksum.update(&kind);
    checksum.update(data);
    file.extend(length.to_be_bytes());
    file.extend(kind);
    file.extend(data);
    file.extend(checksum.sum().to_be_bytes());
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn pixels_survive_a_round_trip() {
        let (width, height) = (5_usize, 4_usize);
        let stride = width * CHANNELS;
        let pixels: Vec<u8> = (0..=255_u8)
            .map(|at| {
                if at % 7 < 4 {
                    0xff
                } else {
                    at.wrapping_mul(37)
                }
            })
            .take(stride * height)
            .collect();
        let file = encode(5, 4, &pixels).unwrap();
        // Signature 8, IHDR 25, then the length of IDAT.
        let length = u32::from_be_bytes(file[33..37].try_into().unwrap()) as usize;
        let mut rows = Vec::new();
        flate2::read::ZlibDecoder::new(&file[41..41 + length])
            .read_to_end(&mut rows)
            .unwrap();
        let mut decoded: Vec<u8> = Vec::new();
        for row in rows.chunks_exact(stride + 1) {
            let above = decoded.len().checked_sub(stride);
            for (at, byte) in row[1..].iter().enumerate() {
                let up = above
                    .filter(|_| row[0] == 2)
                    .map_or(0, |from| decoded[from + at]);
                decoded.push(byte.wrapping_add(up));
            }
        }
        assert_eq!(decoded, pixels);
    }
}
