// Buttons that BlueZ should connect by itself and does not are asked for: one at a time, and never at a bad moment.
import BlueZ
import MonotonicTime

extension AccessoriesStateMachine {
    /// Whether a device may be asked for now. Not while somebody presses, for the radio has better to do; nor while a scan runs or a
    /// person connects or learns something, for they break each other.
    var mayAsk: Bool {
        radio == .on && asked == nil && !isQuiet && !scanning.isScanning && !scanning.isWantedByPerson
            && scanning.personConnects == 0
            && !accessories.values.contains { $0.link.isConnecting || $0.controls?.isDown == true }
    }

    /// Whose turn it is: who has waited longest since it was due.
    var nextAsked: AccessoryID? {
        var next: (id: AccessoryID, time: Instant)?
        for id in order {
            guard let time = accessories[id]?.link.asksAfter, next.map({ time < $0.time }) ?? true else { continue }
            next = (id, time)
        }
        return next?.id
    }

    mutating func ask(at now: Instant) -> [Action] {
        guard mayAsk, let id = nextAsked, let device = accessories[id]?.link.device?.id,
            let time = accessories[id]?.link.asksAfter, time <= now
        else { return [] }
        let actions = link(id, .ask, at: now)
        if actions.contains(.command(.connect(device: device))) { asked = device }
        return actions
    }
}
