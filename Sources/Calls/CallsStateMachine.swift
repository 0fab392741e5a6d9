// The current calls, kept up to date from the services' messages. Pure: messages in, questions and reports out.
import DBus
import MonotonicTime

/// The calls of all services.
struct CallsStateMachine {
    /// What happens.
    enum Event: Sendable {
        /// The service is on the bus.
        case appeared(CallService)
        /// The service has left the bus.
        case vanished(CallService)
        /// It sent a signal.
        case signal(CallService, CallSignal)
        /// It answered the question of that number; `serial` is the sender's number of the answer.
        case answered(CallService, number: UInt64, serial: UInt32, arguments: [DBusValue])
        /// It did not answer. `isFinal`: asking again would not help.
        case failed(CallService, number: UInt64, reason: String, isFinal: Bool)
    }

    /// What is to be done.
    enum Action: Hashable, Sendable {
        /// Ask the service, and hand in the answer under this number.
        case ask(CallService, CallQuestion, number: UInt64)
        /// The user is in these calls, and in no others, from now on.
        case report([ActiveCall])
        /// For the log: the service said what it must not, or does not answer.
        case complain(CallService, String)
    }

    /// Lines kept of one service.
    static let linesMaximum = 64
    /// Calls kept of one service: a modem carries seven (3GPP TS 22.030).
    static let callsMaximum = 64
    /// Questions that wait for an answer, of one service.
    static let questionsMaximum = 128
    /// Signals remembered while a question waits.
    static let laterMaximum = 512
    /// How often a question that got no answer is asked again.
    static let attemptsMaximum = 5
    /// The pause before the second attempt; it doubles with each.
    static let retryPause = Duration.seconds(1)

    private struct Call {
        var line: DBusObjectPath
        var facts: CallFacts
    }

    private struct Outstanding {
        var question: CallQuestion
        var attempt = 1
    }

    private struct Retry {
        var again: Outstanding
        var at: Instant
    }

    private struct Service {
        var lines: Set<DBusObjectPath> = []
        var calls: [DBusObjectPath: Call] = [:]
        var outstanding: [UInt64: Outstanding] = [:]
        var retries: [Retry] = []
        /// The signals since the oldest outstanding question, to be heard again after its answer.
        var later: [CallSignal] = []
        var hasOverflowed = false
    }

    private var services: [CallService: Service] = [:]
    private var nextNumber: UInt64 = 1
    /// What was reported last.
    private(set) var active: [ActiveCall] = []

    /// When `handleTimeout` has something to do.
    var nextDeadline: Instant? { services.values.flatMap(\.retries).map(\.at).min() }

    /// Takes in what happened.
    mutating func handle(_ event: Event, at now: Instant) -> [Action] {
        var actions: [Action] = []
        switch event {
        case .appeared(let service):
            services[service] = Service()
            ask(Outstanding(question: service.dialect.opening), of: service, &actions)
        case .vanished(let service): services[service] = nil
        case .signal(let service, let signal):
            guard services[service] != nil else { return [] }
            remember(signal, of: service)
            hear(signal, of: service, &actions)
        case .answered(let service, let number, let serial, let arguments):
            answered(service, number, serial, arguments, at: now, &actions)
        case .failed(let service, let number, let reason, let isFinal):
            guard let outstanding = services[service]?.outstanding.removeValue(forKey: number) else { return [] }
            tidy(service)
            actions.append(.complain(service, "\(outstanding.question.method): \(reason)"))
            if !isFinal { retry(outstanding, of: service, at: now, &actions) }
        }
        return actions + report()
    }

    /// Asks again what is due.
    mutating func handleTimeout(at now: Instant) -> [Action] {
        var actions: [Action] = []
        for service in services.keys.sorted() {
            let due = services[service]?.retries.filter { $0.at <= now } ?? []
            services[service]?.retries.removeAll { $0.at <= now }
            for retry in due { ask(retry.again, of: service, &actions) }
        }
        return actions
    }

    // MARK: Questions

    private mutating func ask(_ asked: Outstanding, of service: CallService, _ actions: inout [Action]) {
        let question = asked.question
        guard let state = services[service], !state.outstanding.values.contains(where: { $0.question == question })
        else { return }
        guard state.outstanding.count < Self.questionsMaximum else {
            return actions.append(.complain(service, "more than \(Self.questionsMaximum) questions open"))
        }
        services[service]?.outstanding[nextNumber] = asked
        actions.append(.ask(service, question, number: nextNumber))
        nextNumber += 1
    }

    private mutating func retry(
        _ outstanding: Outstanding, of service: CallService, at now: Instant, _ actions: inout [Action]
    ) {
        guard outstanding.attempt < Self.attemptsMaximum else {
            return actions.append(.complain(service, "\(outstanding.question.method): giving up"))
        }
        guard services[service]?.retries.contains(where: { $0.again.question == outstanding.question }) == false
        else { return }
        let pause = Self.retryPause * (1 << (outstanding.attempt - 1))
        var again = outstanding
        again.attempt += 1
        services[service]?.retries.append(Retry(again: again, at: now + pause))
    }

    /// An answer describes the state at the time when it was sent, so signals that came later are applied to it again.
    private mutating func answered(
        _ service: CallService, _ number: UInt64, _ serial: UInt32, _ arguments: [DBusValue], at now: Instant,
        _ actions: inout [Action]
    ) {
        guard let outstanding = services[service]?.outstanding.removeValue(forKey: number) else { return }
        defer { tidy(service) }
        guard services[service]?.hasOverflowed == false else {
            actions.append(
                .complain(service, "more than \(Self.laterMaximum) signals during \(outstanding.question.method)"))
            return retry(outstanding, of: service, at: now, &actions)
        }
        do throws(DBusError) {
            for news in try service.dialect.news(answering: outstanding.question, arguments) {
                apply(news, of: service, &actions)
            }
        } catch {
            actions.append(.complain(service, "\(outstanding.question.method): \(error)"))
        }
        for signal in services[service]?.later ?? [] where signal.serial > serial {
            hear(signal, of: service, &actions)
        }
    }

    private mutating func remember(_ signal: CallSignal, of service: CallService) {
        guard let state = services[service], !state.outstanding.isEmpty else { return }
        if state.later.count < Self.laterMaximum {
            services[service]?.later.append(signal)
        } else {
            services[service]?.hasOverflowed = true
        }
    }

    private mutating func tidy(_ service: CallService) {
        guard services[service]?.outstanding.isEmpty == true else { return }
        services[service]?.later = []
        services[service]?.hasOverflowed = false
    }

    // MARK: News

    private mutating func hear(_ signal: CallSignal, of service: CallService, _ actions: inout [Action]) {
        do throws(DBusError) {
            for news in try service.dialect.news(signal) { apply(news, of: service, &actions) }
        } catch {
            actions.append(.complain(service, "\(signal.member) of \(signal.path.rawValue.prefix(128)): \(error)"))
        }
    }

    private mutating func apply(_ news: CallUpdate, of service: CallService, _ actions: inout [Action]) {
        guard var state = services[service] else { return }
        switch news {
        case .lines(let lines):
            state.lines = Set(lines.prefix(Self.linesMaximum))
            state.calls = state.calls.filter { state.lines.contains($0.value.line) }
        case .lineGone(let line):
            state.lines.remove(line)
            state.calls = state.calls.filter { $0.value.line != line }
        case .calls(let line, let listed):
            state.calls = state.calls.filter { $0.value.line != line || listed[$0.key] != nil }
            for (path, facts) in listed.sorted(by: { $0.key < $1.key }) {
                set(path, line, facts, &state, service, &actions)
            }
        case .call(let path, let line, let facts): set(path, line, facts, &state, service, &actions)
        case .changed(let path, let facts): state.calls[path]?.facts.merge(facts)
        case .ended(let path): state.calls[path] = nil
        case .ask(let question): return ask(Outstanding(question: question), of: service, &actions)
        }
        services[service] = state
    }

    private func set(
        _ path: DBusObjectPath, _ line: DBusObjectPath, _ facts: CallFacts, _ state: inout Service,
        _ service: CallService, _ actions: inout [Action]
    ) {
        guard state.calls[path] != nil || state.calls.count < Self.callsMaximum else {
            return actions.append(.complain(service, "more than \(Self.callsMaximum) calls"))
        }
        guard state.lines.contains(line) || state.lines.count < Self.linesMaximum else {
            return actions.append(.complain(service, "more than \(Self.linesMaximum) modems"))
        }
        state.lines.insert(line)
        var call = state.calls[path] ?? Call(line: line, facts: CallFacts())
        call.line = line
        call.facts.merge(facts)
        state.calls[path] = call
    }

    private mutating func report() -> [Action] {
        var now: [ActiveCall] = []
        for service in services.keys.sorted() {
            for (path, call) in (services[service]?.calls ?? [:]).sorted(by: { $0.key < $1.key }) {
                guard let state = call.facts.state, state.isInProgress else { continue }
                now.append(ActiveCall(service: service, path: path, state: state, who: call.facts.who))
            }
        }
        guard now != active else { return [] }
        active = now
        return [.report(now)]
    }
}
