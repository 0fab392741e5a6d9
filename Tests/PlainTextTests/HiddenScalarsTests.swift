// What strangers may not put into a name: signs that are not seen, and change what is.
import Testing

@testable import PlainText

@Suite struct HiddenScalarsTests {
    @Test func `what turns a line around is hidden`() {
        for value in [0x061C, 0x200E, 0x200F] + Array(0x202A...0x202E) + Array(0x2066...0x2069) {
            #expect(Unicode.Scalar(value)?.isHidden == true, "\(String(value, radix: 16))")
        }
    }

    @Test func `controls, separators and characters without a shape are hidden`() {
        let values: [UInt32] = [
            0, 0x1B, 0x7F, 0x9B, 0xAD, 0x34F, 0x115F, 0x17B4, 0x180E, 0x200B, 0x2028, 0x2029, 0x2060, 0x2064, 0x206F,
            0x3164, 0xFEFF, 0xFFA0, 0xFFF9, 0xFFFB, 0x1D173, 0xE0001, 0xE0041, 0xE007F,
        ]
        for value in values { #expect(Unicode.Scalar(value)?.isHidden == true, "\(String(value, radix: 16))") }
    }

    @Test func `signs of all scripts, their marks and joiners are not`() {
        let texts = [
            "Anna Müller", "a_b & <c>", "أَبجد", "אָלֶף", "می‌خواهم", "क्‍ष", "👩‍🚒 ❤️", "班长", "葛\u{E0100}", "\u{0601}١٢",
            "e\u{301}",
        ]
        for text in texts {
            #expect(text.unicodeScalars.filter { $0.isHidden }.isEmpty, "\(text)")
        }
    }

    @Test func `joiners and variation selectors shape what is before them`() {
        let text = "a\u{200C}\u{200D}\u{301}\u{FE0F}\u{202E}\u{E0100}"
        #expect(text.unicodeScalars.filter { $0.isShaping }.map(\.value) == [0x200C, 0x200D, 0xFE0F, 0xE0100])
    }
}
