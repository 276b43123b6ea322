//! Figures as PNG, for pages that cannot show SVG.

use resvg::{tiny_skia, usvg};

use crate::svg::Figure;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("no fonts to draw text with: install the package fonts-dejavu-core")]
    NoFonts,
    #[error("figure {id}: {reason}")]
    Figure { id: String, reason: String },
}

/// Draws a figure in the light colours, `scale` pixels to a unit (a figure is 680 units wide).
///
/// # Errors
/// Without any font, or when the size is not drawable.
pub fn png(figure: &Figure, scale: f32) -> Result<Vec<u8>, Error> {
    let failed = |reason: String| Error::Figure {
        id: figure.id().to_owned(),
        reason,
    };
    let mut options = usvg::Options::default();
    let fonts = options.fontdb_mut();
    fonts.load_system_fonts();
    if fonts.is_empty() {
        return Err(Error::NoFonts);
    }
    let tree = usvg::Tree::from_str(&figure.standalone(), &options)
        .map_err(|error| failed(error.to_string()))?;
    let size = tree
        .size()
        .to_int_size()
        .scale_by(scale)
        .ok_or_else(|| failed(format!("no size at scale {scale}")))?;
    let mut pixels = tiny_skia::Pixmap::new(size.width(), size.height())
        .ok_or_else(|| failed(format!("too large at scale {scale}")))?;
    let transform = tiny_skia::Transform::from_scale(scale, scale);
    resvg::render(&tree, transform, &mut pixels.as_mut());
    pixels
        .encode_png()
        .map_err(|error| failed(error.to_string()))
}
