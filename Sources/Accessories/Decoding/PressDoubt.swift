// Whether a control that is told to be down was pressed just now, or was down before it could be heard.
import MonotonicTime

/// A press is an observed edge: up, then down.
///
/// Some accessories repeat the state of a held control, and some are asked for it. After a start, a lost link or a hung bluetoothd their
/// first value may belong to an old press, which must not open the microphone by itself. Of the controls in doubt a "down" is therefore
/// no press until one of these has shown that the control was up: a value that says so, or a silence longer than the accessory's
/// repetition. What waited in a hung bluetoothd is old altogether: of that no "down" is a press.
package struct PressDoubt: Sendable {
    /// A held control that is repeated at all is told again within this time; no accessory is known that takes longer. So long at most it
    /// takes until an accessory that cannot be asked is ready after a start.
    package static let silence = Duration.seconds(3)
    /// A carrier that goes on after it hung has handed on by then what waited in it: some values, of a millisecond each.
    static let backlogTime = Duration.milliseconds(500)

    /// The controls of which a value may come that belongs to an old press.
    private let retold: Set<Control>
    private var doubted: Set<Control> = []
    /// When the silence has been long enough; nil while nothing can be heard, and while an answer is awaited.
    private var until: Instant?
    /// So many values the accessory was asked for since it is heard, and has not answered.
    private var questions = 0
    /// Until then what comes may have waited; nil: what comes is new.
    private var backlogUntil: Instant?

    init(retold: Set<Control>) { self.retold = retold }

    /// Whether the state of every control is known.
    var isCertain: Bool { doubted.isEmpty && backlogUntil == nil }

    /// When `settle` has to be called.
    var nextDeadline: Instant? { earliest(doubted.isEmpty ? nil : until, backlogUntil) }

    /// The accessory is not heard any more; these controls were down.
    mutating func lost(down: Set<Control>, at now: Instant) {
        settle(at: now)
        doubted.formUnion(down.intersection(retold))
        (until, backlogUntil, questions) = (nil, nil, 0)
    }

    /// The accessory is heard from now on.
    ///
    /// - Parameter isKept: Whether its link may be older than our hearing, so that any control may have been down before.
    mutating func heard(isKept: Bool, at now: Instant) {
        settle(at: now)
        if isKept { doubted = retold }
        listen(from: now)
    }

    private mutating func listen(from now: Instant) {
        until = doubted.isEmpty || questions > 0 ? nil : now + Self.silence
    }

    /// The accessory is asked for a value. Until it has answered it cannot be called silent: a bluetoothd that hangs hands the answer on
    /// late, and it may say that a control is held from before.
    mutating func asked(at now: Instant) {
        settle(at: now)
        if seededFault("an-awaited-answer-is-silence") { return }
        questions += 1
        until = nil
    }

    /// The question has been answered, or is given up.
    mutating func answered(at now: Instant) {
        guard questions > 0 else { return }
        questions -= 1
        listen(from: now)
    }

    /// Its carrier goes on after it hung: what was told meanwhile comes now.
    mutating func resumed(at now: Instant) {
        heard(isKept: false, at: now)
        if seededFault("what-waited-in-a-hang-is-a-press") { return }
        backlogUntil = now + Self.backlogTime
    }

    /// The control was told to be up.
    mutating func up(_ control: Control) { doubted.remove(control) }

    /// Whether a control that is told to be down has been pressed since it was heard.
    mutating func isPress(_ control: Control, at now: Instant) -> Bool {
        settle(at: now)
        if seededFault("what-was-held-before-is-a-press") { return true }
        return backlogUntil == nil && !doubted.contains(control)
    }

    /// The silence may have been long enough, and what waited may have come.
    mutating func settle(at now: Instant) {
        if let time = backlogUntil, time <= now { backlogUntil = nil }
        guard let until, until <= now else { return }
        doubted = []
        self.until = nil
    }
}

extension AccessoryProfile {
    /// The controls that are told again while they are held, or may be: by themselves, or because they are read.
    var retoldControls: Set<Control> {
        // Words and keys are events: no stream is known to repeat one. Of characteristics it is often not known.
        inputs.reduce(into: []) { result, input in
            guard input.isReadable || input.repeats ?? (transport == .gatt) else { return }
            result.formUnion(Set(input.rule.controls).subtracting(input.rule.clicks))
        }
    }
}
