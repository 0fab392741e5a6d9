// The keys of [audio] about spoken prompts.
import Settings
import SpokenPrompts

extension Configuration {
    mutating func readPrompts(_ audio: SettingsTable) {
        let program: PromptProgram? = audio.optional("voice", .oneOf)
        let language = audio.optional("voice-language", Self.language)
        let announcesTalker = audio.optional("announce-talker", .boolean)
        guard let program else {
            if language != nil { refuse("voice-language", in: audio) }
            if announcesTalker == true { refuse("announce-talker", in: audio) }
            return
        }
        prompts = PromptSettings(
            program: program, language: language ?? PromptLanguage(environment: Self.environment),
            announcesTalker: announcesTalker ?? false)
    }

    private func refuse(_ key: String, in audio: SettingsTable) {
        audio.problem(
            key, "nothing is spoken without a voice",
            "add voice = \"\(PromptProgram.espeak.rawValue)\" to [audio], or remove this key")
    }

    /// What keeps prompts from being spoken, in words that say what to do.
    func promptProblems() -> [String] { prompts?.program.problem.map { ["audio.voice: \($0)"] } ?? [] }

    private static var language: SettingType<PromptLanguage> {
        SettingType<String>.string(lengthMax: 35)
            .map(placeholder: .english) { text throws(SettingRefusal) in
                guard PromptLanguage.isTag(text) else {
                    let known = PromptLanguage.allCases.map { "\"\($0.rawValue)\"" }.joined(separator: ", ")
                    throw SettingRefusal(
                        "\"\(text)\" is not a language", "write one of \(known); others are spoken in English")
                }
                return PromptLanguage(tag: text)
            }
    }
}
