// TOML 1.0: strings, numbers, booleans, arrays and inline tables.

extension TOMLParser {
    mutating func value() throws(TOMLSyntaxError) -> TOMLNode {
        let start = index
        guard let byte = peek else { throw error("a value is missing", "write key = value") }
        let value: TOMLValue
        switch byte {
        case UInt8(ascii: "\""):
            value = .string(try follows("\"\"\"") ? multilineString(UInt8(ascii: "\"")) : basicString())
        case UInt8(ascii: "'"):
            value = .string(try follows("'''") ? multilineString(UInt8(ascii: "'")) : literalString())
        case UInt8(ascii: "["):
            value = .array(try nested { parser throws(TOMLSyntaxError) in try parser.array() })
        case UInt8(ascii: "{"):
            value = .table(try nested { parser throws(TOMLSyntaxError) in try parser.inlineTable() })
        default:
            value = try plain()
        }
        return TOMLNode(value: value, offset: start)
    }

    private mutating func nested<T>(
        _ body: (inout TOMLParser) throws(TOMLSyntaxError) -> T
    ) throws(TOMLSyntaxError) -> T {
        guard nesting < Self.nestingMax else {
            throw error("values are nested deeper than \(Self.nestingMax)", "flatten them")
        }
        nesting += 1
        defer { nesting -= 1 }
        return try body(&self)
    }

    // MARK: Arrays and inline tables

    private mutating func array() throws(TOMLSyntaxError) -> [TOMLNode] {
        let start = index
        index += 1
        var elements: [TOMLNode] = []
        while true {
            try skipLines()
            guard let byte = peek else { throw error("the array is not closed", "end it with ']'", at: start) }
            if byte == UInt8(ascii: "]") { break }
            elements.append(try value())
            try skipLines()
            if peek == UInt8(ascii: ",") {
                index += 1
            } else if peek != UInt8(ascii: "]") {
                throw error("',' or ']' is expected here", "separate the elements of an array with ','")
            }
        }
        index += 1
        return elements
    }

    private mutating func skipLines() throws(TOMLSyntaxError) {
        while true {
            skipBlanks()
            try comment()
            guard try newline() else { return }
        }
    }

    private mutating func inlineTable() throws(TOMLSyntaxError) -> TOMLTable {
        let table = TOMLTable(.inline, offset: index)
        index += 1
        skipBlanks()
        if peek == UInt8(ascii: "}") {
            index += 1
            return table
        }
        while true {
            try assignment(in: table)
            skipBlanks()
            switch peek {
            case UInt8(ascii: ","):
                index += 1
                skipBlanks()
                guard peek != UInt8(ascii: "}") else {
                    throw error("a comma before '}'", "remove the comma")
                }
            case UInt8(ascii: "}"):
                index += 1
                return table
            default:
                throw error("',' or '}' is expected here", "an inline table is { a = 1, b = 2 } on one line")
            }
        }
    }

    // MARK: Strings

    mutating func literalString() throws(TOMLSyntaxError) -> String {
        let start = index
        index += 1
        while let byte = peek, byte != UInt8(ascii: "'") {
            guard !Self.isControl(byte) else { throw unclosed(start) }
            index += 1
        }
        guard peek != nil else { throw unclosed(start) }
        index += 1
        return String(decoding: bytes[start + 1..<index - 1], as: UTF8.self)
    }

    mutating func basicString() throws(TOMLSyntaxError) -> String {
        let start = index
        index += 1
        var text: [UInt8] = []
        while let byte = peek, byte != UInt8(ascii: "\"") {
            guard !Self.isControl(byte) else { throw unclosed(start) }
            if byte == UInt8(ascii: "\\") {
                try escape(into: &text)
            } else {
                text.append(byte)
                index += 1
            }
        }
        guard peek != nil else { throw unclosed(start) }
        index += 1
        return String(decoding: text, as: UTF8.self)
    }

    private func unclosed(_ start: Int) -> TOMLSyntaxError {
        error("the text in quotes is not closed on its line", "end it with the same quote", at: start)
    }

    private mutating func multilineString(_ quote: UInt8) throws(TOMLSyntaxError) -> String {
        let start = index
        index += 3
        _ = try newline()
        var text: [UInt8] = []
        while let byte = peek {
            if byte == quote, peek(at: 1) == quote, peek(at: 2) == quote {
                index += 3
                // Up to two quotes may stand directly before the closing three.
                for _ in 0..<2 where peek == quote {
                    text.append(quote)
                    index += 1
                }
                return String(decoding: text, as: UTF8.self)
            }
            if quote == UInt8(ascii: "\""), byte == UInt8(ascii: "\\") {
                if try !lineContinuation() { try escape(into: &text) }
            } else if try newline() {
                text.append(UInt8(ascii: "\n"))
            } else if Self.isControl(byte) {
                throw error("a control character in a text", "write it as \\u00XX")
            } else {
                text.append(byte)
                index += 1
            }
        }
        throw error("the text in three quotes is not closed", "end it with the same three quotes", at: start)
    }

    /// A backslash at the end of a line swallows all white space up to the next visible character.
    private mutating func lineContinuation() throws(TOMLSyntaxError) -> Bool {
        let start = index
        index += 1
        skipBlanks()
        guard try newline() else {
            index = start
            return false
        }
        repeat { skipBlanks() } while try newline()
        return true
    }

    private mutating func escape(into text: inout [UInt8]) throws(TOMLSyntaxError) {
        let start = index
        index += 1
        let escaped = peek
        index += 1
        switch escaped {
        case UInt8(ascii: "b"): text.append(0x08)
        case UInt8(ascii: "t"): text.append(0x09)
        case UInt8(ascii: "n"): text.append(0x0A)
        case UInt8(ascii: "f"): text.append(0x0C)
        case UInt8(ascii: "r"): text.append(0x0D)
        case UInt8(ascii: "\""): text.append(0x22)
        case UInt8(ascii: "\\"): text.append(0x5C)
        case UInt8(ascii: "u"), UInt8(ascii: "U"):
            var scalar: UInt32 = 0
            for _ in 0..<(escaped == UInt8(ascii: "u") ? 4 : 8) {
                guard let byte = peek, let digit = Self.digit(byte, radix: 16) else {
                    throw error("the escape has too few hexadecimal digits", "write \\uXXXX or \\UXXXXXXXX", at: start)
                }
                scalar = scalar << 4 | UInt32(digit)
                index += 1
            }
            guard let scalar = Unicode.Scalar(scalar) else {
                throw error("the escape is not a Unicode scalar value", "use the number of a character", at: start)
            }
            text.append(contentsOf: String(Character(scalar)).utf8)
        default:
            throw error(
                "an unknown escape", "write \\\\ for a backslash, or put the text in single quotes", at: start)
        }
    }

    // MARK: Booleans and numbers

    private mutating func plain() throws(TOMLSyntaxError) -> TOMLValue {
        let start = index
        while let byte = peek,
            Self.isBareKey(byte) || byte == UInt8(ascii: "+") || byte == UInt8(ascii: ".")
                || byte == UInt8(ascii: ":") || byte >= 0x80
        {
            index += 1
        }
        let token = bytes[start..<index]
        let text = String(decoding: token, as: UTF8.self)
        switch text {
        case "": throw error("a value is expected here", "text stands in quotes", at: start)
        case "true": return .boolean(true)
        case "false": return .boolean(false)
        case "inf", "+inf": return .float(.infinity)
        case "-inf": return .float(-.infinity)
        case "nan", "+nan", "-nan": return .float(.nan)
        default: break
        }
        if let integer = try Self.integer(token, start) { return .integer(integer) }
        if let float = Self.float(token) { return .float(float) }
        if token.count >= 5, token.allSatisfy({ Self.isDate($0) }) {
            throw error("dates and times are not used in settings", "put the value in quotes", at: start)
        }
        throw error("'\(text)' is not a value", "put text in quotes: \"\(text)\"", at: start)
    }

    static func isDate(_ byte: UInt8) -> Bool {
        digit(byte, radix: 10) != nil || "-:.+TtZz".utf8.contains(byte)
    }

    static func digit(_ byte: UInt8, radix: UInt8) -> UInt8? {
        let digit: UInt8
        switch byte {
        case UInt8(ascii: "0")...UInt8(ascii: "9"): digit = byte - UInt8(ascii: "0")
        case UInt8(ascii: "a")...UInt8(ascii: "f"): digit = byte - UInt8(ascii: "a") + 10
        case UInt8(ascii: "A")...UInt8(ascii: "F"): digit = byte - UInt8(ascii: "A") + 10
        default: return nil
        }
        return digit < radix ? digit : nil
    }

    /// Digits with single underscores between them only, without the underscores; nil when it is not that.
    static func digits(_ token: ArraySlice<UInt8>, radix: UInt8) -> [UInt8]? {
        var result: [UInt8] = []
        var previousIsDigit = false
        for byte in token {
            if byte == UInt8(ascii: "_") {
                guard previousIsDigit else { return nil }
                previousIsDigit = false
            } else if digit(byte, radix: radix) != nil {
                result.append(byte)
                previousIsDigit = true
            } else {
                return nil
            }
        }
        return previousIsDigit ? result : nil
    }

    /// Nil when the token is no integer; an error when it is one that does not fit 64 bits.
    static func integer(_ token: ArraySlice<UInt8>, _ offset: Int) throws(TOMLSyntaxError) -> Int64? {
        var rest = token
        var radix: UInt8 = 10
        var sign = ""
        if rest.count > 2, rest.first == UInt8(ascii: "0"), let mark = rest.dropFirst().first {
            switch mark {
            case UInt8(ascii: "x"): radix = 16
            case UInt8(ascii: "o"): radix = 8
            case UInt8(ascii: "b"): radix = 2
            default: break
            }
        }
        if radix != 10 {
            rest = rest.dropFirst(2)
        } else if rest.first == UInt8(ascii: "-") || rest.first == UInt8(ascii: "+") {
            sign = rest.first == UInt8(ascii: "-") ? "-" : ""
            rest = rest.dropFirst()
        }
        guard let digits = digits(rest, radix: radix) else { return nil }
        if radix == 10, digits.count > 1, digits[0] == UInt8(ascii: "0") {
            throw TOMLSyntaxError(
                offset: offset, message: "a number does not begin with 0", advice: "remove the leading zeros")
        }
        guard let value = Int64(sign + String(decoding: digits, as: UTF8.self), radix: Int(radix)) else {
            throw TOMLSyntaxError(offset: offset, message: "the number is too large", advice: "64 bits are the limit")
        }
        return value
    }

    static func float(_ token: ArraySlice<UInt8>) -> Double? {
        var rest = token
        var text: [UInt8] = []
        if let sign = rest.first, sign == UInt8(ascii: "-") || sign == UInt8(ascii: "+") {
            if sign == UInt8(ascii: "-") { text.append(sign) }
            rest = rest.dropFirst()
        }
        let exponentMark = rest.firstIndex { $0 == UInt8(ascii: "e") || $0 == UInt8(ascii: "E") }
        let mantissa = rest[rest.startIndex..<(exponentMark ?? rest.endIndex)]
        let dot = mantissa.firstIndex(of: UInt8(ascii: "."))
        guard dot != nil || exponentMark != nil else { return nil }
        guard let whole = digits(mantissa[mantissa.startIndex..<(dot ?? mantissa.endIndex)], radix: 10),
            whole.count == 1 || whole[0] != UInt8(ascii: "0")
        else { return nil }
        text += whole
        if let dot {
            guard let fraction = digits(mantissa[(dot + 1)...], radix: 10) else { return nil }
            text += [UInt8(ascii: ".")] + fraction
        }
        if let exponentMark {
            var exponent = rest[(exponentMark + 1)...]
            text.append(UInt8(ascii: "e"))
            if let sign = exponent.first, sign == UInt8(ascii: "-") || sign == UInt8(ascii: "+") {
                text.append(sign)
                exponent = exponent.dropFirst()
            }
            guard let exponentDigits = digits(exponent, radix: 10) else { return nil }
            text += exponentDigits
        }
        return Double(String(decoding: text, as: UTF8.self))
    }
}
