// The texts of prompts, and names of others in them.

import Testing

@testable import SpokenPrompts

@Suite struct PromptTextsTests {
    private static let prompts: [SpokenPrompt] = [
        .channel("Team"), .connectionLost, .connectedAgain, .batteryLow("Team"), .talked("Team"),
    ]

    @Test(arguments: PromptLanguage.allCases)
    func `a language has all texts, each with the name where it has one`(language: PromptLanguage) {
        let texts = PromptTexts.of(language)
        for text in [texts.channel, texts.batteryLow, texts.talked] {
            #expect(text.ranges(of: PromptTexts.name).count == 1, "\(text)")
        }
        for text in [texts.connectionLost, texts.connectedAgain] {
            #expect(!text.isEmpty && !text.contains("{"), "\(text)")
        }
        for prompt in Self.prompts {
            let text = prompt.text(in: language)
            #expect(text?.isEmpty == false && text?.contains("{") == false && (text?.count ?? 0) < 60, "\(prompt)")
        }
    }

    @Test func `languages differ from one another, and so do the prompts of each`() {
        for prompt in [SpokenPrompt.connectionLost, .connectedAgain, .batteryLow("x"), .talked("x")] {
            #expect(Set(PromptLanguage.allCases.map { prompt.text(in: $0) }).count == PromptLanguage.allCases.count)
        }
        for language in PromptLanguage.allCases {
            #expect(Set(Self.prompts.map { $0.text(in: language) }).count == Self.prompts.count)
        }
    }

    @Test(arguments: [
        ("Gate 3", "Gate 3"), ("  Gate \t\n 3 \u{202E}", "Gate 3"), ("a\u{1B}[31mb\u{0}", "a 31mb"),
        ("[[h@'loU]]", "h@'loU"), ("-w /etc/passwd", "-w /etc/passwd"), ("한국어", "한국어"), ("🚒", "🚒"),
        ("{name}", "{name}"), ("<break time='60s'/>", "<break time='60s'/>"),
    ])
    func `a name is one line of plain text`(name: String, said: String) {
        #expect(SpokenName(name)?.text == said)
        #expect(SpokenPrompt.channel(name).text(in: .english) == said)
    }

    @Test(arguments: ["", " ", "\u{200B}\u{202E}", "[[]]", "...", "\n\n"])
    func `a name of which nothing can be said gives no prompt`(name: String) {
        #expect(SpokenName(name) == nil)
        for prompt in [SpokenPrompt.channel(name), .batteryLow(name), .talked(name)] {
            #expect(prompt.text(in: .german) == nil)
        }
    }

    @Test func `a name is cut at forty characters and two hundred bytes`() {
        #expect(SpokenName(String(repeating: "a", count: 10_000))?.text == String(repeating: "a", count: 40))
        let marks = "a" + String(repeating: "\u{301}", count: 10_000)
        #expect((SpokenName("b\(marks)")?.text.utf8.count ?? 0) <= SpokenName.bytesMax)
        #expect(SpokenName(String(repeating: "한", count: 100))?.text.count == 40)
    }

    @Test(arguments: [
        ("fr", PromptLanguage.french), ("fr_CA.UTF-8", .french), ("de-AT", .german), ("DE", .german),
        ("ko_KR.utf8@x", .korean), ("en-GB", .english), ("es", .english), ("C", .english), ("C.UTF-8", .english),
        ("", .english), ("frr", .english),
    ])
    func `a language is known by its code`(tag: String, language: PromptLanguage) {
        #expect(PromptLanguage(tag: tag) == language)
    }

    @Test(arguments: [
        (["LC_ALL": "de_DE.UTF-8", "LC_MESSAGES": "fr_FR", "LANG": "ko_KR"], PromptLanguage.german),
        (["LC_ALL": "", "LC_MESSAGES": "fr_FR", "LANG": "ko_KR"], .french),
        (["LANG": "ko_KR.UTF-8"], .korean), (["LC_CTYPE": "fr_FR"], .english), ([:], .english),
    ])
    func `the environment says which language is spoken`(variables: [String: String], language: PromptLanguage) {
        #expect(PromptLanguage(environment: { variables[$0] }) == language)
    }

    @Test func `a tag has the form of BCP 47`() {
        for tag in ["en", "fr", "fr-CA", "zh-Hant-TW", "gsw"] { #expect(PromptLanguage.isTag(tag), "\(tag)") }
        for tag in ["", "f", "french", "fr_FR", "fr-", "-fr", "fr--CA", "fr ", "12", "fr-\n", "fr-CA-x-y-z"] {
            #expect(!PromptLanguage.isTag(tag), "\(tag)")
        }
    }
}
