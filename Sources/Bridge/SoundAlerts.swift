// Decides how to tell a person that the speaker or the microphone has failed, since sound cannot tell it. Pure.

/// What to show when sound fails without a press. A failed press is reported elsewhere.
public struct SoundAlerts: Sendable {
    /// How sound is.
    public struct State: Hashable, Sendable {
        /// Why nothing can be heard; nil: it can.
        public var speakerProblem: String?
        /// Why nothing can be said; nil: it can.
        public var microphoneProblem: String?
        /// Who else speaks; nil: nobody.
        public var talker: String?
        /// Whether this machine transmits.
        public var isTransmitting: Bool

        /// A state; by default everything works and nobody speaks.
        public init(
            speakerProblem: String? = nil, microphoneProblem: String? = nil, talker: String? = nil,
            isTransmitting: Bool = false
        ) {
            self.speakerProblem = speakerProblem
            self.microphoneProblem = microphoneProblem
            self.talker = talker
            self.isTransmitting = isTransmitting
        }
    }

    /// What is shown.
    public enum News: Hashable, Sendable {
        /// In words, where there is a screen.
        case announce(String)
        /// Accessories show "refused" for a moment.
        case flash
    }

    private var state = State()

    /// Everything works.
    public init() {}

    /// Compares the new state with the previous one.
    public mutating func update(_ new: State) -> [News] {
        let old = state
        state = new
        var news: [News] = []
        if let problem = new.speakerProblem {
            if old.speakerProblem == nil { news.append(.announce("Nothing can be heard: \(problem)")) }
            // Who speaks now is not heard: a light is all that can say so.
            let isNewTalker = new.talker != nil && new.talker != old.talker
            if old.speakerProblem == nil || isNewTalker { news.append(.flash) }
        }
        if let problem = new.microphoneProblem, old.microphoneProblem == nil, !new.isTransmitting {
            news.append(.announce("Nothing can be said: \(problem)"))
        }
        return news
    }
}
