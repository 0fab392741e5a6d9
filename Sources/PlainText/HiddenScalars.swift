// Characters of untrusted text that are invisible, or change how the rest of it is displayed. Pure.

extension Unicode.Scalar {
    /// Whether this scalar is no sign of its own and may hide, reorder or break what stands beside it in a line: control characters (C0, DEL,
    /// C1), separators of lines and paragraphs, the marks, embeddings, overrides and isolates of the bidirectional algorithm (UAX #9), and
    /// other characters without a shape (Default_Ignorable_Code_Point, UAX #44; interlinear annotations).
    ///
    /// Joiners and variation selectors are let through: they only shape the sign before them, and Persian, Indic scripts and emoji need them.
    public var isHidden: Bool {
        switch value {
        // The common case, without a look into tables.
        case 0x20...0x7E: return false
        case 0xFFF9...0xFFFB: return true
        default: break
        }
        switch properties.generalCategory {
        case .control, .lineSeparator, .paragraphSeparator: return true
        default: return properties.isDefaultIgnorableCodePoint && !isShaping
        }
    }

    /// Whether this scalar only shapes the sign before it: ZWNJ, ZWJ, variation selectors.
    public var isShaping: Bool { value == 0x200C || value == 0x200D || properties.isVariationSelector }
}
