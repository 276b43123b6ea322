//! The answer on a terminal: a sentence first, figures after, one line each.

use std::fmt::Write;

use stats::Verdict;

use crate::analysis::{Analysis, Row};
use crate::record::Question;
use crate::words::{
    Sentence, away, builds, counts, delay_split, disturbance, energy_says, headline, placed,
    programs, ps_says, scope, skips,
};
use crate::{advice, agreement, crossing};

/// Column of the load beside a question.
const LOAD_COLUMN: usize = 66;

/// The results of an experiment as text: its questions in their order, each answered by its first
/// metric.
pub fn results(analysis: &Analysis<'_>) -> String {
    let mut text = String::new();
    let header = &analysis.record.header;
    let headline = header
        .questions
        .iter()
        .find_map(|question| headline(analysis, question));
    let disturbance = disturbance(analysis.record);
    for said in [
        headline,
        builds(header),
        programs(header),
        placed(header),
        away(header),
        Some(scope(analysis)),
        disturbance,
    ]
    .into_iter()
    .flatten()
    {
        line(&mut text, &said);
    }
    for question in &analysis.record.header.questions {
        for load in &analysis.record.header.loads {
            answer(&mut text, analysis, question, load);
        }
        let further = [
            advice::sentences(analysis, question),
            crossing::sentences(analysis, question),
            agreement::sentences(analysis, question),
        ];
        for sentence in further.iter().flatten() {
            line(&mut text, sentence);
        }
    }
    for skip in &skips(&analysis.record.header) {
        line(
            &mut text,
            &format!(
                "{} {}: {}; {}",
                skip.what, skip.how, skip.reason, skip.remedy
            ),
        );
    }
    honesty(&mut text, analysis);
    for notice in &analysis.record.notices {
        line(&mut text, &format!("notice: {notice}"));
    }
    text
}

fn answer(text: &mut String, analysis: &Analysis<'_>, question: &Question, load: &str) {
    let Some(metric) = analysis.answering(question, load) else {
        return;
    };
    let mut rows: Vec<&Row<'_>> = analysis
        .question_rows(question, &metric.name, load)
        .filter(|row| !row.is_honesty_check() && !analysis.record.header.is_floor(&row.arm))
        .collect();
    let counts = counts(analysis, question, load);
    if rows.is_empty() && counts.is_empty() {
        return;
    }
    rows.sort_by(|a, b| b.strength().total_cmp(&a.strength()));
    line(text, &format!("{:<LOAD_COLUMN$}{load}", question.text));
    let sentences: Vec<Sentence> = rows.iter().map(|row| Sentence::of(row)).collect();
    let claim = width(&sentences, |sentence| &sentence.claim);
    let medians = width(&sentences, |sentence| &sentence.medians);
    for sentence in &sentences {
        let figures = format!(
            "  {:<claim$}   {:<medians$}   {}",
            sentence.claim, sentence.medians, sentence.evidence
        );
        line(text, &figures);
    }
    let more = [
        delay_split(analysis, question, load),
        ps_says(analysis, question, load),
        energy_says(analysis, question, load),
    ];
    for more in more.into_iter().flatten().chain(counts) {
        line(text, &format!("  {more}"));
    }
}

/// Long claims (reasons) stand on their own and do not push the figures of the others aside.
fn width(sentences: &[Sentence], part: impl Fn(&Sentence) -> &String) -> usize {
    sentences
        .iter()
        .map(|sentence| part(sentence).chars().count())
        .filter(|width| *width <= 64)
        .max()
        .unwrap_or(0)
}

/// The baseline's third run against its first: a claim here would be a false one.
fn honesty(text: &mut String, analysis: &Analysis<'_>) {
    let checks: Vec<&Row<'_>> = analysis
        .rows
        .iter()
        .filter(|row| row.is_honesty_check())
        .collect();
    let false_claims: Vec<&&Row<'_>> = checks
        .iter()
        .filter(|row| matches!(row.verdict(), Verdict::Better | Verdict::Worse))
        .collect();
    if let Some(first) = checks.first() {
        line(
            text,
            &format!(
                "honesty check: {} against {} in {} rows, {} false claims",
                first.arm,
                first.baseline,
                checks.len(),
                false_claims.len()
            ),
        );
    }
    for row in false_claims {
        let claim = Sentence::of(row).claim;
        line(
            text,
            &format!("  {} under {}: {claim}", row.metric.name, row.load),
        );
    }
}

fn line(text: &mut String, words: &str) {
    // Writing into a String cannot fail.
    let _ = writeln!(text, "{}", words.trim_end());
}
