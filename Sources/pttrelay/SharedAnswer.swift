// One answer for all who want to know the same.
import MonotonicTime

/// Asks a question at most once in an interval, however many want to know.
actor SharedAnswer<Answer: Sendable> {
    private let interval: Duration
    private let keepsLast: Bool
    private let ask: @Sendable () async -> Answer?
    private var last: (answer: Answer?, hasFailed: Bool, at: Instant)?
    private var asking: Task<Answer?, Never>?

    /// - Parameters:
    ///   - interval: How long an answer is given again, counted from when it came.
    ///   - keepsLast: Whether the last answer is still good when there is none any more.
    ///   - ask: Asks the question, which ends at some time; nil: there is no answer.
    init(interval: Duration, keepsLast: Bool = false, ask: @escaping @Sendable () async -> Answer?) {
        self.interval = interval
        self.keepsLast = keepsLast
        self.ask = ask
    }

    /// The answer; nil: there is none.
    func answer() async -> Answer? {
        if let last, .now - last.at < interval { return last.answer }
        let question = asking ?? begin()
        // Who has not answered the last time keeps nobody waiting this time: it is known the next time whether it does.
        if let last, last.hasFailed { return last.answer }
        _ = await question.value
        return last?.answer
    }

    private func begin() -> Task<Answer?, Never> {
        let task = Task { [ask] in
            let answer = await ask()
            note(answer)
            return answer
        }
        asking = task
        return task
    }

    private func note(_ answer: Answer?) {
        last = (answer ?? (keepsLast ? last?.answer : nil), answer == nil, .now)
        asking = nil
    }
}
